-- What stands beside a lock: `<last fence> <first fence> <fences> <lease in ms> <since> <request> <tag>`, and in the next lines who asked. An
-- owner that is new for every asking is never taken for another: so what is left of its record harms nobody. Where the owner is the request
-- itself, its tag is `p` alone: a server goes over each letter of a text that a script reads or makes.
local function fence_in(text) return tonumber(string.match(text or '', '^%d+')) or 0 end

local function whole(number) return string.format('%.0f', number) end

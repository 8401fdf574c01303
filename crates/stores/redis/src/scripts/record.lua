-- What stands beside a lock, and in the next lines who asked. After an ordinary grant, whose first fence is the clock's and tells since when:
-- `<last fence> <fences> <lease in ms> <request> p`, and with zero fences if its one fence was a jump ahead of the clock. It is short because a server goes over each letter of a text that a script reads or
-- makes. After any other `+<last fence> <first fence> <fences> <lease in ms> <since> <request> <tag>`, or `+<last fence>` alone where an owner
-- is shared. An owner that is new for every asking is never taken for another: so what is left of its record harms nobody.
local function fence_in(text) return tonumber(string.match((text or '') .. ' ', '^%+?(%d+) ')) or 0 end

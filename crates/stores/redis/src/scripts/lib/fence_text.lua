-- The text at a fence's key. Its first line is the last fence and the record of the grant; the lines after it describe
-- the holder.
--   ordinary grant   `<last fence> <fences> <lease in ms> <request> p`. The first fence is the clock's, so it tells
--                    the time of the grant too. Zero fences mean a single fence, JUMP ahead of the clock.
--   any other grant  `+<last fence> <first fence> <fences> <lease in ms> <granted at> <request> <tag>`
--   shared owner     `+<last fence>`; the record has a key of its own.
-- The ordinary text is short because the server goes over every byte of a string that a script reads or builds. A
-- private owner is unique per acquire, so a leftover record never matches another owner.
local function parse_fence(text) return tonumber(string.match((text or '') .. ' ', '^%+?(%d+) ')) or 0 end

-- Somebody else has one of the names: the client stands in line for it, and is told who.
local at = (busy - 1) * PARTS
if ARGV[8] == '1' then enlist(KEYS[at + 4], KEYS[at + 5], client) end
return {'busy', now, busy - 1, (describe(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]))}

-- Tells the first in line of a lock that was given back. KEYS: lock, line, heard. ARGV: name. Answers as a release.
local lock, line, heard = KEYS[1], KEYS[2], KEYS[3]
local waiting = count_line(line, heard)
if call('EXISTS', lock) == 0 then hint(line, ARGV[1]) end
return {'released', now, waiting}

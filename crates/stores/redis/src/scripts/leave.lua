-- Takes a client off the line. If it was the first and the lock is free, it may have been told so and not come: then the next one is
-- told. KEYS: lock, line, heard. ARGV: name, client.

local lock, line, heard = KEYS[1], KEYS[2], KEYS[3]
local was_head = try_call('ZRANGE', line, 0, 0)[1] == ARGV[2]
strike(line, heard, ARGV[2])
if was_head and call('EXISTS', lock) == 0 then
  count_line(line, heard)
  hint(line, ARGV[1])
end
return now

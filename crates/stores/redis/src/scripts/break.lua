-- Takes a lock away from its holder. KEYS of one name. ARGV: name, `now` or `end`. Answers {clock, clients that wait, who held it}.

local lock, record_key, line, heard = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local before = describe(lock, KEYS[2], record_key)
local waiting = count_line(line, heard)
if before[1] ~= -2 then
  if ARGV[2] == 'end' then
    -- As `insist`: nobody has this name.
    call('ZREM', line, '')
    break_at_end(lock)
  else
    call('DEL', lock, record_key)
    hint(line, ARGV[1])
    announce(KEYS[7])
  end
end
return {now, waiting, before}

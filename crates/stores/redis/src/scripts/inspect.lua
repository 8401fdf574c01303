-- Who holds locks. KEYS: lock, fence, record and heard of each. Answers the clock, and for each how many clients wait and who holds it.
-- ARGV: `one`, where what is no lock at all is an error; `all`, where that is answered with a 0, as what is free; or `locks`, where
-- another program's value is answered with a 0 as well.

local answer = {now}
for at = 1, #KEYS, 4 do
  local ok, found = pcall(describe, KEYS[at], KEYS[at + 1], KEYS[at + 2])
  if not ok then
    if ARGV[1] == 'one' then error(found) end
    expect_wrong_type(found)
    found = {-2}
  end
  if ARGV[1] ~= 'one' and (found[1] == -2 or found[2] == FOREIGN and ARGV[1] == 'locks') then
    answer[#answer + 1] = 0
  else
    local waiting = try_call('ZCOUNT', KEYS[at + 3], '(' .. whole(now), '+inf')
    answer[#answer + 1] = {type(waiting) == 'number' and waiting or 0, found}
  end
end
return answer

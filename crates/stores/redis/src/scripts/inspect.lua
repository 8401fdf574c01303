-- Who holds locks. KEYS: lock, fence, record and heard of each. Answers the clock, and for each how many clients wait and who holds it.
-- Where ARGV[1] is `any`, what is no lock at all is answered as free, and what is free with a 0; else the first is an error.

local answer = {now}
for at = 1, #KEYS, 4 do
  local ok, found = pcall(describe, KEYS[at], KEYS[at + 1], KEYS[at + 2])
  if not ok then
    if ARGV[1] ~= 'any' then error(found) end
    found = {-2}
  end
  if found[1] == -2 and ARGV[1] == 'any' then
    answer[#answer + 1] = 0
  else
    local waiting = try_call('ZCOUNT', KEYS[at + 3], '(' .. whole(now), '+inf')
    answer[#answer + 1] = {type(waiting) == 'number' and waiting or 0, found}
  end
end
return answer

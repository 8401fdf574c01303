-- Which fences no clock has counted. KEYS: fences. Answers the clock, and for each such fence its place among the keys and what it is:
-- nothing where it is no number, `WRONGTYPE` where it is no string.

local answer, clock = {now}, (now - FENCE_EPOCH) * 8
for at, key in ipairs(KEYS) do
  local last = fence_at(key)
  if is_unfit(last, clock) then answer[#answer + 1] = {at, told_unfit(last, key)} end
end
return answer

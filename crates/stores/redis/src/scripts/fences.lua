-- Finds unfit fences, for `doctor`. KEYS: fences. Returns the clock, and for each unfit fence {position, value}: '' for
-- a string that is not a number, `WRONGTYPE` for a value that is not a string.

--@include lib/prelude.lua
--@include lib/fence_text.lua
--@include lib/records.lua

local answer, clock = {now}, (now - FENCE_EPOCH) * 8
for at, key in ipairs(KEYS) do
  local last = read_fence(key)
  if is_unfit(last, clock) then answer[#answer + 1] = {at, describe_unfit(last, key)} end
end
return answer

-- Renews leases. KEYS: lock of each, and the key that its record stands in. ARGV: tag, fence, hold (or nothing), term in ms of each.
-- Answers the clock, and for each lease how many ms are left, -1 where it is gone, or -2 where an operator broke it.

local answer = {now}
for at = 1, #KEYS / 2 do
  local first = (at - 1) * 4
  answer[at + 1] =
    renew(KEYS[at * 2 - 1], KEYS[at * 2], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3], tonumber(ARGV[first + 4]))
end
return answer

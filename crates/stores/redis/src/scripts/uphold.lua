-- One server's part in renewals of a quorum. KEYS: lock of each lease and the key that its record stands in, and the birth. ARGV: tag, fence, hold (or nothing), term
-- in ms of each, then quarantine in ms, and whether every write is synced (1 or 0).
-- Answers {clock, recovers for, …}, and for each lease how many ms are left, -1 where it is gone, or -2 where an operator broke it; {clock, -1, quarantine} where the
-- server is used with another quarantine.

local leases = (#KEYS - 1) / 2
local recovers, other = recovers_for(KEYS[#KEYS], tonumber(ARGV[leases * 4 + 1]), ARGV[leases * 4 + 2])
if not recovers then return {now, -1, other} end

local answer = {now, recovers}
for at = 1, leases do
  local first = (at - 1) * 4
  answer[at + 2] =
    renew(KEYS[at * 2 - 1], KEYS[at * 2], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3], tonumber(ARGV[first + 4]))
end
return answer

-- Renews leases on one server of a quorum. KEYS: the lock of each and the key of its record; then the server's epoch.
-- ARGV: tag, fence, hold (or ''), term in ms of each; then quarantine in ms, every write is synced (1 or 0).
-- Returns {clock, recovery in ms, …}, with how many ms are left of each lease, -1 if it is gone, or -2 if an operator
-- broke it; or {clock, -1, quarantine} if the server is used with another quarantine.

--@include lib/prelude.lua
--@include lib/fence_text.lua
--@include lib/{layout}/lock.lua
--@include lib/waitlist.lua
--@include lib/records.lua
--@include lib/{layout}/ownership.lua
--@include lib/lease_renewal.lua
--@include lib/server_epoch.lua

local leases = (#KEYS - 1) / 2
local recovery, other = recovery_ms(KEYS[#KEYS], tonumber(ARGV[leases * 4 + 1]), ARGV[leases * 4 + 2])
if not recovery then return {now, -1, other} end

local answer = {now, recovery}
for at = 1, leases do
  local first = (at - 1) * 4
  answer[at + 2] =
    renew_lease(KEYS[at * 2 - 1], KEYS[at * 2], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3],
      tonumber(ARGV[first + 4]))
end
return answer

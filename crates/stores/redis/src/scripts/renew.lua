-- Renews leases. KEYS: the lock of each, and the key of its record. ARGV: tag, fence, hold (or ''), term in ms of each.
-- Returns the clock, and for each lease how many ms are left, -1 if it is gone, or -2 if an operator broke it.

--@include lib/prelude.lua
--@include lib/fence_text.lua
--@include lib/{layout}/lock.lua
--@include lib/waitlist.lua
--@include lib/records.lua
--@include lib/{layout}/ownership.lua
--@include lib/lease_renewal.lua

local answer = {now}
for at = 1, #KEYS / 2 do
  local first = (at - 1) * 4
  answer[at + 1] =
    renew_lease(KEYS[at * 2 - 1], KEYS[at * 2], ARGV[first + 1], ARGV[first + 2], ARGV[first + 3],
      tonumber(ARGV[first + 4]))
end
return answer

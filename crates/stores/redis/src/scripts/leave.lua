-- Removes a client from the waitlist. If it was the first and the lock is free, it may have been notified and given up,
-- so the next one is notified. KEYS: lock, waitlist, expiries. ARGV: name, client. Returns the clock.

--@include lib/prelude.lua
--@include lib/waitlist.lua

local lock, waitlist, expiries = KEYS[1], KEYS[2], KEYS[3]
local was_first = try_call('ZRANGE', waitlist, 0, 0)[1] == ARGV[2]
remove_waiter(waitlist, expiries, ARGV[2])
if was_first and call('EXISTS', lock) == 0 then
  count_waiters(waitlist, expiries)
  hint_first(waitlist, ARGV[1])
end
return now

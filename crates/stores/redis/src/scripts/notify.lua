-- Notifies the first waiter of each lock that a batch released. KEYS: lock, waitlist and expiries of each. ARGV: their
-- names.
-- Returns how many clients wait for each.

--@include lib/prelude.lua
--@include lib/waitlist.lua

local answer = {}
for at = 1, #ARGV do
  local lock, waitlist, expiries = KEYS[at * 3 - 2], KEYS[at * 3 - 1], KEYS[at * 3]
  answer[at] = count_waiters(waitlist, expiries)
  if answer[at] > 0 and try_call('EXISTS', lock) == 0 and not hint_first(waitlist, ARGV[at]) then answer[at] = 0 end
end
return answer

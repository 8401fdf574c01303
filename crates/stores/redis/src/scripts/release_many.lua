-- Releases a batch of locks, as far as they are ordinary.
-- KEYS: the lock of each, the fence of each and, in the plain layout, the waitlist of each. ARGV: their number; the
-- owner of each; the fence of each grant (or ''); and, in Redisson's layout, the channel of each.
-- Returns the clock, 0, how many were processed, and the positions of those among them that were not released. A
-- negative position was released and a subscriber received the message, so its first waiter still has to be notified.

--@include lib/prelude.lua
--@include lib/{layout}/lock.lua
--@include lib/ordinary_release.lua

local KEYS, ARGV = KEYS, ARGV
local count = tonumber(ARGV[1])
local listeners = {}

-- An error ends the loop; the locks after it are not processed.
local function release_all()
  -- One EXISTS for all waitlists, because usually no client waits.
  local waitlists = count * 2
  local anyone_waits = #KEYS > waitlists and call('EXISTS', unpack(KEYS, waitlists + 1)) ~= 0
  local texts = call('MGET', unpack(KEYS, count + 1, waitlists))
  for at = 1, count do
    local is_awaited = anyone_waits and call('EXISTS', KEYS[waitlists + at]) ~= 0
    local owner, fence, channel = ARGV[at + 1], ARGV[count + at + 1], ARGV[waitlists + at + 1]
    listeners[at] = not is_awaited and release_ordinary(KEYS[at], texts[at], owner, owner, fence, channel)
  end
end
pcall(release_all)

local some_remain = #listeners > 0 and count_remaining(unpack(KEYS, 1, #listeners)) > 0
local answer = {now, 0, #listeners}
for at = 1, #listeners do
  -- A lock that was granted to another holder beside us takes the long path, which reports it as lost.
  local is_released = listeners[at] and not (some_remain and count_remaining(KEYS[at]) > 0)
  if listeners[at] ~= 0 or not is_released then answer[#answer + 1] = is_released and -at or at end
end
return answer

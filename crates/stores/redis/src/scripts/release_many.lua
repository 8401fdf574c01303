-- Releases of one moment in one call, for the ordinary ones among them. KEYS: the locks of all, their fences, and in the plain layout then
-- their lines. ARGV: how many; their owners; the fences of their grants (or nothing); and in the layout of Redisson their channels.
-- Answers the clock, a zero, how many were looked at, and the places of those among them for which nothing was done. One with a minus
-- before it was done, and somebody heard it: the first in line is still to be told.

local KEYS, ARGV = KEYS, ARGV
local count = tonumber(ARGV[1])
local heard = {}

-- A fault ends it, and those that are left are not done.
local function all()
  -- Asked for all at once: most often nobody waits.
  local lines = count * 2
  local anybody_waits = #KEYS > lines and call('EXISTS', unpack(KEYS, lines + 1)) ~= 0
  local beside = call('MGET', unpack(KEYS, count + 1, lines))
  for at = 1, count do
    local is_waited_for = anybody_waits and call('EXISTS', KEYS[lines + at]) ~= 0
    local owner, fence, channel = ARGV[at + 1], ARGV[count + at + 1], ARGV[lines + at + 1]
    heard[at] = not is_waited_for and release_alone(KEYS[at], beside[at], owner, owner, fence, channel)
  end
end
pcall(all)

local has_company = #heard > 0 and count_left(unpack(KEYS, 1, #heard)) > 0
local answer = {now, 0, #heard}
for at = 1, #heard do
  -- One that was granted to somebody beside us is looked at the long way, which tells that it was lost.
  local is_given = heard[at] and not (has_company and count_left(KEYS[at]) > 0)
  if heard[at] ~= 0 or not is_given then answer[#answer + 1] = is_given and -at or at end
end
return answer

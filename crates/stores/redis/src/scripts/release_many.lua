-- Releases of one moment in one call, for the ordinary ones among them. KEYS: the lines of all, then their locks. ARGV: the owners of all,
-- then the channels.
-- Answers the clock, a zero, how many were looked at, and the places of those among them for which nothing was done.

local KEYS, ARGV = KEYS, ARGV
local count = #KEYS / 2
local answer = {now, 0, 0}

-- A fault ends it, and those that are left are not done.
local function all()
  -- Asked for all at once: most often nobody waits.
  local anybody_waits = call('EXISTS', unpack(KEYS, 1, count)) ~= 0
  for at = 1, count do
    local is_waited_for = anybody_waits and call('EXISTS', KEYS[at]) ~= 0
    if is_waited_for or not release_alone(KEYS[count + at], ARGV[at], ARGV[at], ARGV[count + at]) then answer[#answer + 1] = at end
    answer[3] = at
  end
end
pcall(all)
return answer

-- Releases of one moment in one call, for the ordinary ones among them. KEYS of each: lock, line. ARGV of each: owner, channel.
-- Answers the clock, and for each 1, or 0 where nothing was done for it.

local KEYS, ARGV = KEYS, ARGV
local answer = {now}
for at = 1, #KEYS / 2 do answer[at + 1] = 0 end

-- A fault ends it, and those that are left are not done.
local function all()
  for at = 1, #KEYS / 2 do
    local key = at * 2
    if release_alone(KEYS[key - 1], KEYS[key], ARGV[key - 1], ARGV[key]) then answer[at + 1] = 1 end
  end
end
pcall(all)
return answer

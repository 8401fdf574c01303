-- Acquires of one moment in one call, for the ordinary ones among them. KEYS of each: lock, fence, line, and in the layout of Redisson the
-- token. ARGV: lease in ms, fences, the largest fence that any has seen, the first end of those after which they are too late, about; then
-- the owner of each.
-- Answers the clock, the first fence of those that are granted, and for each 1, or 0 where nothing was done for it.

local KEYS, ARGV = KEYS, ARGV
local lease, about, count = ARGV[1], ARGV[5], #KEYS / SHORT
local first, grant = proposal(lease, tonumber(ARGV[2]), ARGV[3], ARGV[4])
local answer = {now, first or 0}
for at = 1, count do answer[at + 2] = 0 end

-- A fault ends it, and those that are left are not done.
local function all()
  for at = 1, count do
    local key = (at - 1) * SHORT
    local lock, fence, line, token = KEYS[key + 1], KEYS[key + 2], KEYS[key + 3], SHORT > 3 and KEYS[key + 4]
    if acquire_free(lock, fence, line, token, ARGV[at + 5], first, grant, lease, about) then answer[at + 2] = 1 end
  end
end
if first then pcall(all) end
return answer

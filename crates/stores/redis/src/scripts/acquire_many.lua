-- Acquires of one moment in one call, for the ordinary ones among them. KEYS: the fences of all; then the lock of each, and in the layout
-- of Redisson its token. ARGV: lease in ms, fences, the largest fence that any has seen or below which the clock was set back, the first
-- end of those after which they are too late, about; then the owner of each.
-- Answers the clock, the first fence of those that are granted, how many were looked at, and the places of those among them for which
-- nothing was done. One with a minus before it was granted one fence, a jump further on.

local KEYS, ARGV = KEYS, ARGV
local lease, about, count, parts = ARGV[1], ARGV[5], #KEYS / SHORT, SHORT - 1
local answer = {now, 0, 0}

-- A fault ends it, and those that are left are not done.
local function all()
  -- Asked for all at once: most often all are free. One that comes twice is asked for again.
  local are_free = call('EXISTS', unpack(KEYS, count + 1)) == 0
  local before, taken = call('MGET', unpack(KEYS, 1, count)), {}
  for at = 1, count do
    local key = count + (at - 1) * parts
    local lock = KEYS[key + 1]
    local is_free = are_free and not taken[lock] or call('EXISTS', unpack(KEYS, key + 1, key + parts)) == 0
    local is_granted, is_jump
    if is_free then is_granted, is_jump = acquire_free(lock, KEYS[at], before[at], ARGV[at + 5], lease, about) end
    if is_granted then taken[lock] = true end
    if is_jump or not is_granted then answer[#answer + 1] = is_granted and -at or at end
    answer[3] = at
  end
end
if proposes(lease, ARGV[2], ARGV[3], ARGV[4]) then
  answer[2] = first
  pcall(all)
end
return answer

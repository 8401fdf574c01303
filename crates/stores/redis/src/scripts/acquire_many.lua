-- Acquires a batch of names, each for an owner of its own, as far as they are ordinary.
-- KEYS: the fence of each; then the lock of each and, in Redisson's layout, its token. ARGV: lease in ms, fences, the
-- largest fence that any request has seen or that a clock set back would be below, the earliest time after which one of
-- them is too late, about; then the owner of each.
-- Returns the clock, the first fence of every grant, how many requests were processed, and the positions of those among
-- them that were not granted. A negative position was granted a single fence, JUMP further ahead.

--@include lib/prelude.lua
--@include lib/fence_text.lua
--@include lib/{layout}/lock.lua
--@include lib/free_grant.lua

local KEYS, ARGV = KEYS, ARGV
local lease, about, count, parts = ARGV[1], ARGV[5], #KEYS / KEYS_PER_BATCHED, KEYS_PER_BATCHED - 1
local answer = {now, 0, 0}

-- An error ends the loop; the requests after it are not processed.
local function acquire_all()
  -- One EXISTS for all names, because usually all are free. A name that occurs twice is checked again.
  local are_free = call('EXISTS', unpack(KEYS, count + 1)) == 0
  local before, taken = call('MGET', unpack(KEYS, 1, count)), {}
  for at = 1, count do
    local key = count + (at - 1) * parts
    local lock = KEYS[key + 1]
    local can_grant = are_free and not taken[lock] or call('EXISTS', unpack(KEYS, key + 1, key + parts)) == 0
    local is_granted, is_jump
    if can_grant then is_granted, is_jump = grant_free(lock, KEYS[at], before[at], ARGV[at + 5], lease, about) end
    if is_granted then taken[lock] = true end
    if is_jump or not is_granted then answer[#answer + 1] = is_granted and -at or at end
    answer[3] = at
  end
end
if prepare_grant(lease, ARGV[2], ARGV[3], ARGV[4]) then
  answer[2] = first
  pcall(acquire_all)
end
return answer

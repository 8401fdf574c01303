-- The ordinary acquire: one name that is free, nobody in line, and an owner that is new for every asking. What is not ordinary is left to
-- others, and nothing was written by then.

-- What all names of a call are given: the first fence, which is the clock's, and how the text beside their locks begins; the same for
-- names whose fences may have been forgotten. Fences of the same few hours begin alike.
local first, first_text, stale_text, grant, hours

-- Whether there is something to give: not when it is too late, when larger fences or a later clock were seen, or when they are spent.
local function proposes(lease, block, seen, not_after)
  first = (now - FENCE_EPOCH) * 8
  local last = first + block - 1
  if now > tonumber(not_after) or first <= tonumber(seen) or not (last + JUMP < EXACT) then return false end
  first_text, stale_text = whole(first), whole(first - STALE)
  grant, hours = whole(last) .. ' ' .. block .. ' ' .. lease .. ' ', string.sub(first_text, 1, 5)
  return true
end

-- Whether the last fence is below the first one of ours; whether it was written within hours, so that it is kept for long enough; and
-- whether it is stale. To make numbers of text costs as much as a command, so texts are compared where no fence can have more digits than
-- ours: one with fewer is smaller, and if its text is not, it is only looked at the long way.
local function is_below(before)
  if #first_text < DIGITS or find(before, hours, 1, true) ~= 1 or not find(before, '^%d+ %d', 6) then
    local last = fence_in(before)
    -- What is no fence is looked at the long way.
    return last > 0 and last < first, false, last + STALE < first
  end
  return before < first_text, true, before < stale_text
end

-- Whether a lock that is free was granted, and whether by a jump, with one fence. `before` is what stood beside it.
local function acquire_free(lock, fence, before, owner, lease, about)
  local has_room, is_kept, is_stale = true, false, true
  if before then has_room, is_kept, is_stale = is_below(before) end
  -- The clock was set back, or is behind many fences of one moment.
  if not has_room then return false end
  local begins = is_stale and whole(first + JUMP) .. ' 0 ' .. lease .. ' ' or grant
  local beside = begins .. owner .. ' p\n' .. about
  -- First of all: a server that is out of memory refuses this one, and nothing was written.
  if is_kept then
    call('SET', fence, beside, 'KEEPTTL')
  elseif not before then
    -- Something else than a text stands there.
    if not call('SET', fence, beside, 'PX', FENCES_KEPT_MS, 'NX') then return false end
  else
    call('SET', fence, beside, 'PX', FENCES_KEPT_MS)
  end
  take(lock, owner, owner, '1', lease)
  return true, is_stale
end

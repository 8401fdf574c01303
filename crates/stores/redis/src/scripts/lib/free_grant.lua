-- The ordinary grant: the name is free, no client waits, and the owner is unique to this request. Any other case
-- returns before the first write and is left to the long path.

-- Shared by all names of a call: the first fence, which is the clock's, and how the text at each fence's key begins.
-- Fences of the same few hours have the same first digits.
local first, first_text, stale_text, grant, hours

-- Prepares the values above. Returns false if the request is too late, if the client has seen larger fences or a later
-- clock, or if fences are used up.
local function prepare_grant(lease, block, seen, not_after)
  first = (now - FENCE_EPOCH) * 8
  local last = first + block - 1
  if now > tonumber(not_after) or first <= tonumber(seen) or not (last + JUMP < EXACT) then return false end
  first_text, stale_text = format_integer(first), format_integer(first - STALE)
  grant, hours = format_integer(last) .. ' ' .. block .. ' ' .. lease .. ' ', string.sub(first_text, 1, 5)
  return true
end

-- Returns whether the last fence is below our first one, whether it was written within hours, so that its key need not
-- be given a new expiry, and whether it is stale. Converting text to numbers costs as much as a command, so texts are
-- compared if no fence can have more digits than ours. A fence with fewer digits is smaller; if its text is not, the
-- long path decides.
local function compare_last(before)
  if #first_text < DIGITS or find(before, hours, 1, true) ~= 1 or not find(before, '^%d+ %d', 6) then
    local last = parse_fence(before)
    -- A text that is not a fence is left to the long path.
    return last > 0 and last < first, false, last + STALE < first
  end
  return before < first_text, true, before < stale_text
end

-- Returns whether the lock was granted, and whether with a single fence JUMP ahead. `before` is the text at the fence's
-- key.
local function grant_free(lock, fence, before, owner, lease, about)
  local has_room, is_kept, is_stale = true, false, true
  if before then has_room, is_kept, is_stale = compare_last(before) end
  -- The clock was set back, or many fences of this moment were granted.
  if not has_room then return false end
  local begins = is_stale and format_integer(first + JUMP) .. ' 0 ' .. lease .. ' ' or grant
  local text = begins .. owner .. ' p\n' .. about
  -- This is the first write: a server that is out of memory refuses it, and nothing has changed.
  if is_kept then
    call('SET', fence, text, 'KEEPTTL')
  elseif not before then
    -- NX fails if the key has a value that is not a string.
    if not call('SET', fence, text, 'PX', FENCES_KEPT_MS, 'NX') then return false end
  else
    call('SET', fence, text, 'PX', FENCES_KEPT_MS)
  end
  write_lock(lock, owner, owner, '1', lease)
  return true, is_stale
end

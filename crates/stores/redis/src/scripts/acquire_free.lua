-- The ordinary acquire: one name that is free, nobody in line, and an owner that is new for every asking. What is not ordinary is left to
-- others, and nothing was written by then.

-- What is given out of fences and time, to one or to many.
local function proposal(lease, block, seen, not_after)
  local first = math.max(seen + 1, (now - FENCE_EPOCH) * 8)
  if now > tonumber(not_after) or not (first + block < EXACT) then return end
  return first, grant_text(first + block - 1, first, block, lease)
end

-- Whether it was granted.
local function acquire_free(lock, fence, line, token, owner, first, grant, lease, about)
  if not is_all_free(lock, line, token) then return false end
  local beside = grant .. owner .. ' p' .. owner .. '\n' .. about
  -- First of all: a server that is out of memory refuses this one, and nothing was written.
  local before = redis.pcall('SET', fence, beside, 'PX', FENCES_KEPT_MS, 'GET')
  if type(before) == 'table' then return false end
  if before and fence_in(before) >= first then
    -- The clock was set back, or is behind many fences of one moment.
    redis.call('SET', fence, before, 'PX', FENCES_KEPT_MS)
    return false
  end
  take(lock, owner, owner, '1', lease)
  return true
end

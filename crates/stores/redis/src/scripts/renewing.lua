-- Renews one lease, and never makes it again.

local function renew_shared(lock, record_key, tag, fence, hold, term, count)
  local record = load_record(record_key, tag)
  if not record or whole(record[2]) ~= fence then return -1 end
  local left, foreign = redis.call('PTTL', lock), foreign_holds(count, record)
  local holds, last = live_holds(record), 0
  for at = 1, #holds, 2 do
    if hold == '' or holds[at] == hold then
      holds[at + 1] = math.max(holds[at + 1], now + term * 1000)
      last = math.max(last, holds[at + 1])
    end
  end
  if last == 0 then return -1 end
  record[4], record[7] = term, holds
  insist(lock)
  local ms = math.max(ms_until(math.max(last_end(holds), record[9])), foreign > 0 and left or 1)
  take(lock, string.sub(tag, 2), hold, #holds / 2 + foreign, ms)
  save_record(record_key, record, ms)
  return ms_until(last)
end

-- Whether a record is of this fence. One that is missing (it was evicted) or damaged says nothing else: then the owner alone must do, as
-- there is one for every asking.
local function is_fence_of(record_key, tag, fence)
  local packed = redis.pcall('GET', record_key)
  -- It begins with both; to read all of it is seldom needed.
  local beginning = cmsgpack.pack(tag, tonumber(fence))
  if type(packed) == 'string' and string.sub(packed, 2, #beginning + 1) == beginning then return true end
  local record = load_record(record_key, tag)
  return not record or whole(record[2]) == fence
end

local function renew(lock, record_key, tag, fence, hold, term)
  if is_shared(tag) or hold == '' then
    local ok, count = pcall(holds_of, lock, string.sub(tag, 2), hold)
    -- Something else stands at the name now: then the lock is gone.
    if not ok or not count then return -1 end
    if is_shared(tag) then return renew_shared(lock, record_key, tag, fence, hold, term, count) end
  elseif not is_held_by(lock, string.sub(tag, 2), hold) then
    return -1
  end
  if not is_fence_of(record_key, tag, fence) then return -1 end
  local left = redis.call('PTTL', lock)
  if left == -1 then return term end
  if left >= term then return left end
  redis.call('PEXPIRE', lock, term)
  redis.call('PEXPIRE', record_key, term)
  return term
end

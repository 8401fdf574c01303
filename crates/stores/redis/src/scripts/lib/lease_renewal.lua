-- Renews one lease. A lease that has ended is never created again.

-- A lock held for longer than this also renews the expiry of its fence's key.
local LONG = FENCES_KEPT_MS / 2 * 1000

local function renew_shared(lock, fence_key, record_key, tag, fence, hold, term, count, record)
  if format_integer(record[2]) ~= fence then return -1 end
  local left, foreign = call('PTTL', lock), foreign_holds(count, record)
  local holds, last = live_holds(record), 0
  for at = 1, #holds, 2 do
    if hold == '' or holds[at] == hold then
      holds[at + 1] = math.max(holds[at + 1], now + term * 1000)
      last = math.max(last, holds[at + 1])
    end
  end
  if last == 0 then return -1 end
  record[4], record[7] = term, holds
  begin_writes(lock)
  check_rights(lock, record_key, left)
  local ms = math.max(ms_until(math.max(latest_end(holds), record[9])), foreign > 0 and left or 1)
  write_lock(lock, string.sub(tag, 2), hold, #holds / 2 + foreign, ms)
  save_record(record_key, record, ms)
  if now - record[5] > LONG and read_fence(fence_key) < math.huge then call('PEXPIRE', fence_key, FENCES_KEPT_MS) end
  return ms_until(last)
end

-- Returns whether the record is of this fence, and whether its key needs a new expiry. A record that is missing
-- (evicted) or damaged does not contradict: the owner alone decides, because it is unique per acquire.
local function check_fence(fence_key, tag, fence)
  local text = read_text(fence_key)
  -- No other grant has this fence, so the rest of the text rarely has to be parsed.
  local last, fences = string.match(text, '^(%d+) (%d+) ')
  if (fences == '1' or fences == '0') and last == fence then return true, now - FENCE_EPOCH - fence / 8 > LONG end
  local first, since = string.match(text, '^%+%d+ (%d+) %d+ %d+ (%d+) ')
  if first == fence then return true, now - since > LONG end
  local record = parse_record(text, tag)
  return not record or format_integer(record[2]) == fence, record ~= nil
end

-- The reply for an owner that does not hold the lock: -2 if an operator broke its lease under this fence, else -1.
local function gone_or_broken(lock, fence_key, record_key, tag, fence, hold)
  local ok, broken, record = pcall(find_holds, lock, fence_key, record_key, tag, BROKEN .. string.sub(tag, 2), hold)
  if not ok or not broken then return -1 end
  if is_shared(tag) then
    local holds = live_holds(record)
    local is_there = hold == '' and #holds > 0 or index_of(holds, hold, 2)
    return is_there and format_integer(record[2]) == fence and -2 or -1
  end
  return check_fence(fence_key, tag, fence) and -2 or -1
end

-- Renews the lease of this owner under this fence. `record_key` is the key that the record is stored at.
local function renew_lease(lock, record_key, tag, fence, hold, term)
  if is_shared(tag) or hold == '' then
    local fence_key = is_shared(tag) and string.gsub(record_key, 'leasehold_lock:', 'leasehold_fence:', 1) or record_key
    local ok, count, record = pcall(find_holds, lock, fence_key, record_key, tag, string.sub(tag, 2), hold)
    -- The key has a value of another type now, so the lock is gone.
    if not ok then return -1 end
    if not count then return gone_or_broken(lock, fence_key, record_key, tag, fence, hold) end
    if is_shared(tag) then return renew_shared(lock, fence_key, record_key, tag, fence, hold, term, count, record) end
  elseif not is_held_by(lock, string.sub(tag, 2), hold) then
    return gone_or_broken(lock, record_key, record_key, tag, fence, hold)
  end
  local is_ours, is_long = check_fence(record_key, tag, fence)
  if not is_ours then return -1 end
  local left = call('PTTL', lock)
  if left == -1 then return term end
  if left >= term then return left end
  call('PEXPIRE', lock, term)
  if is_long then call('PEXPIRE', record_key, FENCES_KEPT_MS) end
  return term
end

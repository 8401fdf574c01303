-- Renews one lease, and never makes it again.

-- Whoever holds a lock for days keeps what stands beside it.
local LONG = FENCES_KEPT_MS / 2 * 1000

local function renew_shared(lock, fence_key, record_key, tag, fence, hold, term, count, record)
  if whole(record[2]) ~= fence then return -1 end
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
  insist(lock)
  check_rights(lock, record_key, left)
  local ms = math.max(ms_until(math.max(last_end(holds), record[9])), foreign > 0 and left or 1)
  take(lock, string.sub(tag, 2), hold, #holds / 2 + foreign, ms)
  save_record(record_key, record, ms)
  if now - record[5] > LONG and fence_at(fence_key) < math.huge then call('PEXPIRE', fence_key, FENCES_KEPT_MS) end
  return ms_until(last)
end

-- Whether a record is of this fence. One that is missing (it was evicted) or damaged says nothing else: then the owner alone must do, as
-- there is one for every asking.
local function is_fence_of(fence_key, tag, fence)
  local text = text_at(fence_key)
  -- No other has this fence: to read all of it is seldom needed.
  local last, fences = string.match(text, '^(%d+) (%d+) ')
  if (fences == '1' or fences == '0') and last == fence then return true, now - FENCE_EPOCH - fence / 8 > LONG end
  local first, since = string.match(text, '^%+%d+ (%d+) %d+ %d+ (%d+) ')
  if first == fence then return true, now - since > LONG end
  local record = record_in(text, tag)
  return not record or whole(record[2]) == fence, record ~= nil
end

-- What to answer where the owner does not hold the lock: -2 where an operator ended its right under this fence, else -1.
local function gone_or_broken(lock, fence_key, record_key, tag, fence, hold)
  local ok, broken, record = pcall(holds_of, lock, fence_key, record_key, tag, BROKEN .. string.sub(tag, 2), hold)
  if not ok or not broken then return -1 end
  if is_shared(tag) then
    local holds = live_holds(record)
    local is_there = hold == '' and #holds > 0 or place_of(holds, hold, 2)
    return is_there and whole(record[2]) == fence and -2 or -1
  end
  return is_fence_of(fence_key, tag, fence) and -2 or -1
end

-- Renews what the owner holds under this fence; `beside` is the key of its record.
local function renew(lock, beside, tag, fence, hold, term)
  if is_shared(tag) or hold == '' then
    local fence_key = is_shared(tag) and string.gsub(beside, 'leasehold_lock:', 'leasehold_fence:', 1) or beside
    local ok, count, record = pcall(holds_of, lock, fence_key, beside, tag, string.sub(tag, 2), hold)
    -- Something else stands at the name now: then the lock is gone.
    if not ok then return -1 end
    if not count then return gone_or_broken(lock, fence_key, beside, tag, fence, hold) end
    if is_shared(tag) then return renew_shared(lock, fence_key, beside, tag, fence, hold, term, count, record) end
  elseif not is_held_by(lock, string.sub(tag, 2), hold) then
    return gone_or_broken(lock, beside, beside, tag, fence, hold)
  end
  local is_ours, is_long = is_fence_of(beside, tag, fence)
  if not is_ours then return -1 end
  local left = call('PTTL', lock)
  if left == -1 then return term end
  if left >= term then return left end
  call('PEXPIRE', lock, term)
  if is_long then call('PEXPIRE', beside, FENCES_KEPT_MS) end
  return term
end

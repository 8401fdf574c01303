-- Acquires names, all or none. KEYS of each name.
-- ARGV: tag, request, lease in ms, fences, the largest fence the client has seen, not after, client, enlist (1 or 0),
-- about; then, as fences, the least and the most that the server's clock shows by the client's estimate.
-- Returns {'granted', clock, {first fence, fences, holds, left in ms}, …}, {'busy', clock, name, holders}, {'late',
-- clock}, {'already', clock, name}, {'unfit', clock, name, last fence, its key} or {'foreign', clock, name, key}. Names
-- are counted from 0.
--
-- The server creates a script's functions with every call, some 0.5 µs each. So each path stands before the functions
-- that only later paths need.

--@include lib/prelude.lua
--@include lib/fence_text.lua
--@include lib/{layout}/lock.lua
--@include lib/free_grant.lua

-- The short path: one name, a private owner, and a free lock without waiters.
local is_set_back = ARGV[10] - (now - FENCE_EPOCH) * 8 > COARSE
if #KEYS == KEYS_PER_NAME and ARGV[1] == 'p' .. ARGV[2] and not is_set_back and
  prepare_grant(ARGV[3], ARGV[4], ARGV[5], ARGV[6]) then
  local lock, fence, owner, lease = KEYS[1], KEYS[2], ARGV[2], ARGV[3]
  if is_free(lock, KEYS[4], KEYS[6]) then
    local before = try_call('GETRANGE', fence, 0, FENCE_LAST)
    if type(before) == 'string' then
      local is_granted, is_jump = grant_free(lock, fence, before ~= '' and before, owner, lease, ARGV[9])
      if is_jump then return {'granted', now, {first + JUMP, 1, 1, tonumber(lease)}} end
      if is_granted then return {'granted', now, {first, tonumber(ARGV[4]), 1, tonumber(lease)}} end
    end
  end
end

--@include lib/waitlist.lua
--@include lib/records.lua
--@include lib/{layout}/ownership.lua

-- The long path: everything else that may be granted.
local tag, request, lease, block = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local seen, not_after, client, about = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[9]
local owner, shared = string.sub(tag, 2), is_shared(tag)
local names = #KEYS / KEYS_PER_NAME

-- If the clock was set back, the true time is between the client's two estimates. An ordinary block is never ahead of
-- it; a block after a loss is never behind it.
local clock = (now - FENCE_EPOCH) * 8
local after_loss = clock + JUMP
if ARGV[10] - clock > COARSE then clock, after_loss = tonumber(ARGV[10]), ARGV[11] + JUMP end

-- Returns the first fence of a grant and their number, from the last fence on record. If that one may be lost, the
-- grant has a single fence, JUMP ahead of the clock. No grant is further ahead than that.
local function reserve_fences(last)
  if last + STALE < clock then return math.max(after_loss, seen + 1), 1 end
  local first, count, below = math.max(last + 1, seen + 1, clock), math.min(block, BLOCK_MAX), clock + JUMP
  -- Fences that are ahead already are granted one by one, so that the clock catches up with them.
  return first, math.max(1, math.min(count, below - first))
end

-- Every name is read before anything is written.
local rows, resent, owned = {}, 0, 0
for name = 1, names do
  local at = (name - 1) * KEYS_PER_NAME
  local row = {left = call('PTTL', KEYS[at + 1])}
  if row.left ~= -2 then
    row.count, row.record = find_holds(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], tag, owner, request)
    if row.count then
      row.resent = not shared
      if shared and row.record then
        row.foreign = foreign_holds(row.count, row.record)
        row.holds = live_holds(row.record)
        row.resent = index_of(row.holds, request, 2) ~= nil
        -- Every hold has ended; only the cooldown is left.
        if #row.holds == 0 and row.foreign == 0 then row.count = nil end
      end
    end
  end
  if row.count then owned = owned + 1 end
  if row.resent then resent = resent + 1 end
  rows[name] = row
end

if now > not_after and resent < names then return {'late', now} end

local busy
for name = 1, names do
  local row = rows[name]
  if row.left ~= -2 and not row.count then
    busy = name
    break
  end
  -- An owner that holds some of the names would wait for itself. An owner that holds all of them re-enters all of them.
  if row.count and not row.resent and names > 1 and not (shared and owned == names) then
    return {'already', now, name - 1}
  end
end

if not busy then
  for name = 1, names do
    local row = rows[name]
    if not (row.count and row.record) then
      row.last, row.token = last_fence((name - 1) * KEYS_PER_NAME)
      row.first, row.block = reserve_fences(row.last)
      if is_unfit(math.max(row.last, row.first + row.block), clock) then
        local key = KEYS[(name - 1) * KEYS_PER_NAME + 2]
        return {'unfit', now, name - 1, describe_unfit(row.last, key), key}
      end
    end
  end

  for name = 1, names do
    local row, at = rows[name], (name - 1) * KEYS_PER_NAME
    if shared and not (row.count and row.record) and is_record_foreign(KEYS[at + 3]) then
      return {'foreign', now, name - 1, KEYS[at + 3]}
    end
  end

  local function grant_name(at, row)
    local record = {tag, row.first, row.block, lease, now, about, request}
    if shared then
      record[7], record[8], record[9] = {request, now + lease * 1000}, {}, 0
    end
    -- This is the first write: a server that is out of memory refuses it, and nothing has changed.
    save_fence(at, row.first + row.block - 1, record, row.token)
    -- Holds that another library took under this owner's name go on.
    local foreign = shared and row.count or 0
    local ms = math.max(lease, row.left)
    write_lock(KEYS[at + 1], owner, request, foreign + 1, ms)
    if shared then save_record(KEYS[at + 3], record, ms) end
    return {row.first, row.block, foreign + 1, lease}
  end

  -- The owner holds the name already: the request was sent again, or a shared owner re-enters.
  local function reenter_name(at, row)
    local record = row.record
    if not shared then return {record[2], record[3], 1, row.left == -1 and lease or math.max(1, row.left)} end
    if row.resent then begin_writes(KEYS[at + 1]) end
    check_rights(KEYS[at + 1], KEYS[at + 3], row.left)
    if not row.resent and not index_of(record[8], request, 1) then
      row.holds[#row.holds + 1] = request
      row.holds[#row.holds + 1] = now + lease * 1000
      record[4] = math.max(record[4], lease)
    end
    record[7] = row.holds
    local count = #row.holds / 2 + row.foreign
    local ms = math.max(ms_until(math.max(latest_end(row.holds), record[9])), row.foreign > 0 and row.left or 1)
    write_lock(KEYS[at + 1], owner, request, count, ms)
    save_record(KEYS[at + 3], record, ms)
    local hold = index_of(row.holds, request, 2)
    -- The reply to a late copy of a request says that its hold was released since.
    if not hold then return {record[2], record[3], count, 0, 'given'} end
    return {record[2], record[3], count, math.max(1, ms_until(row.holds[hold + 1]))}
  end

  local granted = {'granted', now}
  for name = 1, names do
    local row, at = rows[name], (name - 1) * KEYS_PER_NAME
    granted[#granted + 1] = (row.count and row.record) and reenter_name(at, row) or grant_name(at, row)
    -- The waitlist comes last: for a server that is out of memory, its removal would be a first write that lets all
    -- others through.
    remove_waiter(KEYS[at + 4], KEYS[at + 5], client)
  end
  return granted
end

--@include lib/{layout}/inspection.lua
--@include lib/holders.lua

-- The refusal: another owner holds one of the names. The client joins its waitlist and is told who holds it.
local at = (busy - 1) * KEYS_PER_NAME
if ARGV[8] == '1' then add_waiter(KEYS[at + 4], KEYS[at + 5], client) end
return {'busy', now, busy - 1, (describe_lock(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]))}

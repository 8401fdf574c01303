-- Takes names, all or none.
-- ARGV: tag, request, lease in ms, fences, the largest fence the client has seen, not after, client, enlist (1 or 0), about, and as fences
-- the least and the most that the clock shows, as far as the client knows

local tag, request, lease, block = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local seen, not_after, client, about = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[9]
local owner, shared = string.sub(tag, 2), is_shared(tag)
local names = #KEYS / PARTS

-- A clock that was set back stands between what the client says. An ordinary block is never ahead of where it stands; what follows a loss
-- is never behind.
local clock = (now - FENCE_EPOCH) * 8
local after_loss = clock + JUMP
if ARGV[10] - clock > COARSE then clock, after_loss = tonumber(ARGV[10]), ARGV[11] + JUMP end

-- The fences of a grant, from the last one on record: where that may have been forgotten just one, a jump ahead of the clock, and never
-- any further ahead than that.
local function reserve(last)
  if last + STALE < clock then return math.max(after_loss, seen + 1), 1 end
  local first, count, below = math.max(last + 1, seen + 1, clock), math.min(block, BLOCK_MAX), clock + JUMP
  -- Fences that are ahead already go on one by one, so that time catches up with them.
  return first, math.max(1, math.min(count, below - first))
end

-- Nothing is written before every name has been looked at.
local rows, again, mine = {}, 0, 0
for name = 1, names do
  local at = (name - 1) * PARTS
  local row = {left = call('PTTL', KEYS[at + 1])}
  if row.left ~= -2 then
    row.count, row.record = holds_of(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], tag, owner, request)
    if row.count then
      row.again = not shared
      if shared and row.record then
        row.foreign = foreign_holds(row.count, row.record)
        row.holds = live_holds(row.record)
        row.again = place_of(row.holds, request, 2) ~= nil
        -- Every hold has ended; it only lingers.
        if #row.holds == 0 and row.foreign == 0 then row.count = nil end
      end
    end
  end
  if row.count then mine = mine + 1 end
  if row.again then again = again + 1 end
  rows[name] = row
end

if now > not_after and again < names then return {'late', now} end

local busy
for name = 1, names do
  local row = rows[name]
  if row.left ~= -2 and not row.count then
    busy = name
    break
  end
  -- An owner that holds some of the names would wait for itself; one that holds them all re-enters them all.
  if row.count and not row.again and names > 1 and not (shared and mine == names) then return {'already', now, name - 1} end
end

if not busy then
  for name = 1, names do
    local row = rows[name]
    if not (row.count and row.record) then
      row.last, row.token = last_fence((name - 1) * PARTS)
      row.first, row.block = reserve(row.last)
      if is_unfit(math.max(row.last, row.first + row.block), clock) then
        local key = KEYS[(name - 1) * PARTS + 2]
        return {'unfit', now, name - 1, told_unfit(row.last, key), key}
      end
    end
  end

  for name = 1, names do
    local row, at = rows[name], (name - 1) * PARTS
    if shared and not (row.count and row.record) and is_record_foreign(KEYS[at + 3]) then
      return {'foreign', now, name - 1, KEYS[at + 3]}
    end
  end

  local function grant(at, row)
    local record = {tag, row.first, row.block, lease, now, about, request}
    if shared then
      record[7], record[8], record[9] = {request, now + lease * 1000}, {}, 0
    end
    -- First of all: a server that is out of memory refuses this one, and nothing was written.
    save_fence(at, row.first + row.block - 1, record, row.token)
    -- What another library holds under this owner's name goes on.
    local foreign = shared and row.count or 0
    local ms = math.max(lease, row.left)
    take(KEYS[at + 1], owner, request, foreign + 1, ms)
    if shared then save_record(KEYS[at + 3], record, ms) end
    return {row.first, row.block, foreign + 1, lease}
  end

  -- The owner is here already: the same request sent again, or a re-entry of an owner that several clients share.
  local function enter(at, row)
    local record = row.record
    if not shared then return {record[2], record[3], 1, row.left == -1 and lease or math.max(1, row.left)} end
    if row.again then insist(KEYS[at + 1]) end
    check_rights(KEYS[at + 1], KEYS[at + 3], row.left)
    if not row.again and not place_of(record[8], request, 1) then
      row.holds[#row.holds + 1] = request
      row.holds[#row.holds + 1] = now + lease * 1000
      record[4] = math.max(record[4], lease)
    end
    record[7] = row.holds
    local count = #row.holds / 2 + row.foreign
    local ms = math.max(ms_until(math.max(last_end(row.holds), record[9])), row.foreign > 0 and row.left or 1)
    take(KEYS[at + 1], owner, request, count, ms)
    save_record(KEYS[at + 3], record, ms)
    local hold = place_of(row.holds, request, 2)
    -- A late copy of an asking whose hold was given back since is told so.
    if not hold then return {record[2], record[3], count, 0, 'given'} end
    return {record[2], record[3], count, math.max(1, ms_until(row.holds[hold + 1]))}
  end

  local granted = {'granted', now}
  for name = 1, names do
    local row, at = rows[name], (name - 1) * PARTS
    granted[#granted + 1] = (row.count and row.record) and enter(at, row) or grant(at, row)
    -- Not before: a server that is out of memory would take it for a write that must be followed by all others.
    strike(KEYS[at + 4], KEYS[at + 5], client)
  end
  return granted
end

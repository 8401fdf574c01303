-- Gives a hold back. KEYS of one name. ARGV: name, tag, request of the hold (or of the release itself), give (hold, one or all),
-- fence (or nothing), last fence used (or nothing), linger in ms, client, rejoin (1 or 0), whether nobody is told (1 or 0)
-- Answers {'released', clock, clients that wait}, {'still', clock, holds} or {'not', clock}.

local tag, request, give, fence = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local used, linger = tonumber(ARGV[6]), tonumber(ARGV[7])
local lock, fence_key, record_key = KEYS[1], KEYS[2], KEYS[3]
local owner, shared = string.sub(tag, 2), is_shared(tag)
local asked = give == 'hold' and request or ''

local kept_as = owner
local count, record = holds_of(lock, fence_key, record_key, tag, owner, asked)
if not count then
  kept_as = BROKEN .. owner
  count, record = holds_of(lock, fence_key, record_key, tag, kept_as, asked)
end
if not count then
  -- Somebody was granted it beside us: ours is taken out, and theirs stays.
  if fence ~= '' then take_out(lock, fence_key, record_key, tag, fence) end
  return {'not', now}
end
if fence ~= '' and record and whole(record[2]) ~= fence then return {'not', now} end

local lingers = now + linger * 1000
if record and record[9] then lingers = math.max(lingers, record[9]) end

local function still(holds, foreign)
  record[7], record[9] = holds, lingers
  insist(lock)
  local left = call('PTTL', lock)
  check_rights(lock, record_key, left)
  local ms = math.max(ms_until(math.max(last_end(holds), lingers)), foreign > 0 and left or 1)
  take(lock, kept_as, request, #holds / 2 + foreign, ms)
  save_record(record_key, record, ms)
  return {'still', now, #holds / 2 + foreign}
end

if shared and record and give ~= 'all' then
  local holds, foreign = live_holds(record), foreign_holds(count, record)
  if #holds == 0 and foreign == 0 then return {'not', now} end
  if place_of(record[8], request, 1) then return still(holds, foreign) end
  local at = give == 'hold' and place_of(holds, request, 2) or #holds - 1
  if give == 'hold' and not place_of(holds, request, 2) then return {'not', now} end
  if #holds > 0 then
    table.remove(holds, at)
    table.remove(holds, at)
  else
    foreign = foreign - 1
  end
  if #holds > 0 or foreign > 0 then
    if #record[8] == GIVEN_MAX then table.remove(record[8], 1) end
    table.insert(record[8], request)
    return still(holds, foreign)
  end
elseif give == 'hold' and record and record[7] ~= request and not shared then
  return {'not', now}
end

-- Fences of the grant that were not used. What can fail is asked before anything is written.
local last, known, token
if record and used and used < record[2] + record[3] - 1 then
  last = record[2] + record[3] - 1
  known, token = last_fence(0)
end
if lingers > now then
  linger_on(lock, ms_until(lingers))
  -- For people: who held it last.
  if shared and record then call('PEXPIRE', record_key, ms_until(lingers)) end
else
  call('DEL', lock)
  if shared then forget_record(record_key) end
end
if last and known == last then save_fence(0, math.max(used, record[2]), record, token) end

local waiting = leave_line()
if linger == 0 and lingers <= now and ARGV[10] ~= '1' then
  announce(KEYS[7])
  return tell_next(waiting)
end
if ARGV[9] == '1' then enlist(line, heard, client) end
return {'released', now, waiting}

-- Releases a hold. KEYS of one name.
-- ARGV: name, tag, request of the hold (or of the release itself), scope (`hold`, `one` or `all`), fence (or ''), last
-- fence used (or ''), cooldown in ms, client, rejoin the waitlist (1 or 0), quiet: notify no client (1 or 0).
-- Returns {'released', clock, waiting clients}, {'still', clock, holds} or {'not', clock}.
--
-- The server creates a script's functions with every call: see acquire.lua.

--@include lib/prelude.lua
--@include lib/{layout}/lock.lua
--@include lib/ordinary_release.lua

-- The short path: the whole hold of a private owner. In a quorum, every attempt of an owner is a request of its own.
local of_request = ARGV[2] == 'p' .. ARGV[3] or
  LOCK_NAMES_REQUEST and ARGV[5] == '' and string.sub(ARGV[2], 1, 1) == 'p'
local whole_hold = of_request and ARGV[4] == 'hold' and ARGV[6] == ''
local is_released
if whole_hold and ARGV[7] == '0' and ARGV[10] ~= '1' and not has_waiters(KEYS[4]) then
  local text = ARGV[5] ~= '' and try_call('GETRANGE', KEYS[2], 0, FENCE_LAST)
  local listeners = release_ordinary(KEYS[1], text, string.sub(ARGV[2], 2), ARGV[3], ARGV[5], KEYS[7])
  local left = listeners and count_remaining(KEYS[1], KEYS[4])
  if left == 0 and listeners == 0 and ARGV[9] ~= '1' then return {'released', now, 0} end
  is_released = left == 0 or left and count_remaining(KEYS[1]) == 0
end

--@include lib/waitlist.lua

-- After a release: the waitlist.
local name, client, waitlist, expiries = ARGV[1], ARGV[8], KEYS[4], KEYS[5]

-- Removes the client from the waitlist and returns how many clients are left.
local function leave_waitlist()
  remove_waiter(waitlist, expiries, client)
  return count_waiters(waitlist, expiries)
end

-- Notifies the first waiter, and adds the client to the end of the waitlist if it asks for that. Returns the reply.
local function notify_first(waiting)
  if not hint_first(waitlist, name) then waiting = 0 end
  if ARGV[9] == '1' then add_waiter(waitlist, expiries, client) end
  return {'released', now, waiting}
end

-- The short path has released the lock.
if is_released then return notify_first(leave_waitlist()) end

--@include lib/fence_text.lua
--@include lib/records.lua
--@include lib/{layout}/ownership.lua

-- The long path: shared owners, broken locks, cooldowns, and fences that were not used.
local tag, request, scope, fence = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local used, cooldown = tonumber(ARGV[6]), tonumber(ARGV[7])
local lock, fence_key, record_key = KEYS[1], KEYS[2], KEYS[3]
local owner, shared = string.sub(tag, 2), is_shared(tag)
local wanted = scope == 'hold' and request or ''

local stored_owner = owner
local count, record = find_holds(lock, fence_key, record_key, tag, owner, wanted)
if not count then
  stored_owner = BROKEN .. owner
  count, record = find_holds(lock, fence_key, record_key, tag, stored_owner, wanted)
end
if not count then
  -- Another holder may have been granted the lock beside us: our field is removed, and theirs stays.
  if fence ~= '' then remove_own_field(lock, fence_key, record_key, tag, fence) end
  return {'not', now}
end
if fence ~= '' and record and format_integer(record[2]) ~= fence then return {'not', now} end

local cooldown_until = now + cooldown * 1000
if record and record[9] then cooldown_until = math.max(cooldown_until, record[9]) end

local function still_held(holds, foreign)
  record[7], record[9] = holds, cooldown_until
  begin_writes(lock)
  local left = call('PTTL', lock)
  check_rights(lock, record_key, left)
  local ms = math.max(ms_until(math.max(latest_end(holds), cooldown_until)), foreign > 0 and left or 1)
  write_lock(lock, stored_owner, request, #holds / 2 + foreign, ms)
  save_record(record_key, record, ms)
  return {'still', now, #holds / 2 + foreign}
end

if shared and record and scope ~= 'all' then
  local holds, foreign = live_holds(record), foreign_holds(count, record)
  if #holds == 0 and foreign == 0 then return {'not', now} end
  if index_of(record[8], request, 1) then return still_held(holds, foreign) end
  local at = scope == 'hold' and index_of(holds, request, 2) or #holds - 1
  if scope == 'hold' and not index_of(holds, request, 2) then return {'not', now} end
  if #holds > 0 then
    table.remove(holds, at)
    table.remove(holds, at)
  else
    foreign = foreign - 1
  end
  if #holds > 0 or foreign > 0 then
    if #record[8] == RELEASED_MAX then table.remove(record[8], 1) end
    table.insert(record[8], request)
    return still_held(holds, foreign)
  end
elseif scope == 'hold' and record and record[7] ~= request and not shared then
  return {'not', now}
end

-- Fences of the grant that were not used are returned. The reads that can fail come before the first write.
local last, known, token
if record and used and used < record[2] + record[3] - 1 then
  last = record[2] + record[3] - 1
  known, token = last_fence(0)
end
if cooldown_until > now then
  start_cooldown(lock, ms_until(cooldown_until))
  -- The record stays for people: it names the last holder.
  if shared and record then call('PEXPIRE', record_key, ms_until(cooldown_until)) end
else
  call('DEL', lock)
  if shared then delete_record(record_key) end
end
if last and known == last then save_fence(0, math.max(used, record[2]), record, token) end

local waiting = leave_waitlist()
if cooldown == 0 and cooldown_until <= now and ARGV[10] ~= '1' then
  publish_release(KEYS[7])
  return notify_first(waiting)
end
if ARGV[9] == '1' then add_waiter(waitlist, expiries, client) end
return {'released', now, waiting}

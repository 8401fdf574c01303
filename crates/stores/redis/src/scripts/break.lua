-- Breaks a lock. KEYS of one name. ARGV: name, `now` or `end`, the fence that must hold it (or ''), another program's
-- value may be broken (1 or 0), the fences of the name start again from the clock (1 or 0).
-- Returns {verdict, clock, waiting clients, previous holders}. Verdicts: `done`; `other`, another fence holds it or it
-- is in a cooldown; `foreign`, it is another program's value, which may not be broken; `endless`, it is another
-- program's value without an expiry, so it has no end to be broken at. If the fences were to be reset and their key has
-- another program's value: {`fence`, clock, key}. If a fence is given, a free name and its fences stay as they are.

--@include lib/prelude.lua
--@include lib/fence_text.lua
--@include lib/{layout}/lock.lua
--@include lib/waitlist.lua
--@include lib/records.lua
--@include lib/{layout}/ownership.lua
--@include lib/{layout}/inspection.lua
--@include lib/holders.lua

local lock, fence_key, record_key, waitlist, expiries = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local before, holders = describe_lock(lock, fence_key, record_key)
local left, family = before[1], before[2]

-- Whether the lock is held, and only under this fence. A lock in its cooldown is described with zero holds.
local function is_held_under(fence)
  for at = 3, #before do
    local holder = before[at]
    if holder[2] == 0 or not holder[6] or format_integer(holder[6]) ~= fence then return false end
  end
  return #before > 2
end

local verdict = 'done'
if left ~= -2 then
  if ARGV[3] ~= '' and not is_held_under(ARGV[3]) then
    verdict = 'other'
  elseif family == FOREIGN and ARGV[4] ~= '1' then
    verdict = 'foreign'
  elseif family == FOREIGN and ARGV[2] == 'end' and (left == -1 or not CAN_END_FOREIGN) then
    verdict = 'endless'
  end
end

-- A write that needs no memory, as in `begin_writes`. No client has this id.
try_call('ZREM', waitlist, 'leasehold:nobody')
local waiting = is_waitlist(waitlist) and count_waiters(waitlist, expiries) or 0
local stays_free = left == -2 and ARGV[3] ~= ''
if verdict ~= 'done' or stays_free then return {verdict, now, waiting, before} end
-- A string that is not a fence is a damaged record. A value of another type is another program's.
if ARGV[5] == '1' and not read_prefix(fence_key, 0) then return {'fence', now, fence_key} end
-- A user without the right to read the record is refused before anything has changed.
read_text(record_key)

if left ~= -2 then
  if ARGV[2] == 'end' then
    break_at_end(lock, holders)
  else
    call('DEL', lock)
    discard_record(record_key)
  end
end
if ARGV[5] == '1' then
  reset_fences()
  if left == -2 or ARGV[2] ~= 'end' then discard_record(record_key) end
end
if left ~= -2 and ARGV[2] ~= 'end' then
  hint_first(waitlist, ARGV[1])
  publish_release(KEYS[7])
end
return {verdict, now, waiting, before}

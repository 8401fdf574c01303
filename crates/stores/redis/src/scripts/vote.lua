-- One server's vote in a quorum: takes names, all or none, and accepts the proposed fences if all of them are larger
-- than any before.
-- KEYS of each name, then the server's epoch. ARGV: tag, request, lease in ms, first fence, fences, a majority holds it
-- already: the server rejoins (1 or 0), not after, client, enlist (1 or 0), about, quarantine in ms, every write is
-- synced (1 or 0).
-- Returns {'took' or 'held', clock, recovery in ms, left in ms, largest fence before}, {'late', clock, recovery},
-- {'busy', clock, recovery, name, holders}, {'unfit', clock, recovery, name, last fence, its key} or {'apart', clock,
-- quarantine}.

--@include lib/prelude.lua
--@include lib/fence_text.lua
--@include lib/{layout}/lock.lua
--@include lib/waitlist.lua
--@include lib/records.lua
--@include lib/{layout}/ownership.lua
--@include lib/{layout}/inspection.lua
--@include lib/holders.lua
--@include lib/server_epoch.lua

local tag, request, lease, first, count = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local rejoins, not_after, client, about = ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8], ARGV[10]
local owner, last = string.sub(tag, 2), first + count - 1
local names = math.floor(#KEYS / KEYS_PER_NAME)
-- The number of fences in a second.
local NEAR = 8000000

local recovery, epoch_start = recovery_ms(KEYS[#KEYS], tonumber(ARGV[11]), ARGV[12])
if not recovery then return {'apart', now, epoch_start} end

local rows, held, known = {}, 0, 0
-- Before it forgot, the server may have accepted a block that began up to a second ahead of its clock.
local is_near = math.abs(first - (now - FENCE_EPOCH) * 8) <= NEAR and
  first > (epoch_start - FENCE_EPOCH) * 8 + NEAR + BLOCK_MAX
local takes = true
for name = 1, names do
  local at = (name - 1) * KEYS_PER_NAME
  local row = {left = call('PTTL', KEYS[at + 1]), last = last_fence(at)}
  if row.left ~= -2 then
    row.ours = find_holds(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], tag, owner, request)
    row.record = load_record(KEYS[at + 2], KEYS[at + 3], tag)
    if not row.ours and rejoins and row.record and row.record[2] == first then
      row.ours = find_holds(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], tag, owner, '')
    end
    if row.ours then held = held + 1 end
  end
  known = math.max(known, row.last)
  -- A vote that is executed twice is answered as it was the first time, unless the same request has proposed larger
  -- fences since.
  local before = row.ours and row.record
  local grows = is_near and row.last < first
  if before and before[2] >= first then grows = before[2] == first and before[3] == count end
  takes = takes and (rejoins or grows)
  rows[name] = row
end

if now > not_after and held < names then return {'late', now, recovery} end

for name = 1, names do
  local row, at = rows[name], (name - 1) * KEYS_PER_NAME
  if row.left ~= -2 and not row.ours then
    if ARGV[9] == '1' then add_waiter(KEYS[at + 4], KEYS[at + 5], client) end
    return {'busy', now, recovery, name - 1, (describe_lock(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]))}
  end
end

for name = 1, names do
  local row = rows[name]
  if is_unfit(row.last, (now - FENCE_EPOCH) * 8) then
    local key = KEYS[(name - 1) * KEYS_PER_NAME + 2]
    return {'unfit', now, recovery, name - 1, describe_unfit(row.last, key), key}
  end
end

local left = math.huge
for name = 1, names do
  local row, at = rows[name], (name - 1) * KEYS_PER_NAME
  local before = row.ours and row.record
  -- A vote that does not take the fences records zero of them.
  local proposed, fences = first, takes and count or 0
  if before and not takes and before[2] >= first then proposed, fences = before[2], before[3] end
  local since = row.record and row.record[5] or now
  -- If another request joins a grant, the lock stays with the request that took it.
  local taken_by = row.ours and row.record and row.record[7] or request
  -- This is the first write: a server that is out of memory refuses it, and nothing has changed.
  save_fence(at, takes and math.max(last, row.last) or row.last, {tag, proposed, fences, lease, since, about, taken_by})
  local ms = lease
  if row.ours then
    if row.left ~= -1 then ms = row.left end
  else
    write_lock(KEYS[at + 1], owner, request, 1, lease)
  end
  left = math.min(left, ms)
  remove_waiter(KEYS[at + 4], KEYS[at + 5], client)
end
return {takes and 'took' or 'held', now, recovery, left, known}

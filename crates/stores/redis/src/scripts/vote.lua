-- One server's vote in a quorum: takes names, all or none, and the fences that are proposed, where all of them are larger than before.
-- KEYS of each name, and of the birth. ARGV: tag, request, lease in ms, first fence, fences, a majority holds it already (1 or 0), not
-- after, client, enlist (1 or 0), about, quarantine in ms, every write is synced (1 or 0)
-- Answers {'took' or 'held', clock, recovers for, left in ms, largest fence before}, {'late', clock, recovers for}, {'busy', clock,
-- recovers for, name, who}, {'unfit', clock, recovers for, name, last
-- fence, its key} or {'apart', clock, quarantine}.

local tag, request, lease, first, count = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local anew, not_after, client, about = ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8], ARGV[10]
local owner, last = string.sub(tag, 2), first + count - 1
local names = math.floor(#KEYS / PARTS)
-- Fences in a second.
local NEAR = 8000000

local recovers, born = recovers_for(KEYS[#KEYS], tonumber(ARGV[11]), ARGV[12])
if not recovers then return {'apart', now, born} end

local rows, held, known = {}, 0, 0
-- Before it forgot it may have taken what is a second ahead of its clock, and the rest of that block.
local is_near = math.abs(first - (now - FENCE_EPOCH) * 8) <= NEAR and first > (born - FENCE_EPOCH) * 8 + NEAR + BLOCK_MAX
local takes = true
for name = 1, names do
  local at = (name - 1) * PARTS
  local row = {left = call('PTTL', KEYS[at + 1]), last = last_fence(at)}
  if row.left ~= -2 then
    row.ours = holds_of(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], tag, owner, request)
    row.record = load_record(KEYS[at + 2], KEYS[at + 3], tag)
    if not row.ours and anew and row.record and row.record[2] == first then
      row.ours = holds_of(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], tag, owner, '')
    end
    if row.ours then held = held + 1 end
  end
  known = math.max(known, row.last)
  -- A ballot that is executed twice is answered as it was the first time, unless the same request has proposed larger fences since.
  local before = row.ours and row.record
  local grows = is_near and row.last < first
  if before and before[2] >= first then grows = before[2] == first and before[3] == count end
  takes = takes and (anew or grows)
  rows[name] = row
end

if now > not_after and held < names then return {'late', now, recovers} end

for name = 1, names do
  local row, at = rows[name], (name - 1) * PARTS
  if row.left ~= -2 and not row.ours then
    if ARGV[9] == '1' then enlist(KEYS[at + 4], KEYS[at + 5], client) end
    return {'busy', now, recovers, name - 1, (describe(KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]))}
  end
end

for name = 1, names do
  local row = rows[name]
  if is_unfit(row.last, (now - FENCE_EPOCH) * 8) then
    local key = KEYS[(name - 1) * PARTS + 2]
    return {'unfit', now, recovers, name - 1, told_unfit(row.last, key), key}
  end
end

local left = math.huge
for name = 1, names do
  local row, at = rows[name], (name - 1) * PARTS
  local before = row.ours and row.record
  -- Of fences that are not taken there are none.
  local proposed, fences = first, takes and count or 0
  if before and not takes and before[2] >= first then proposed, fences = before[2], before[3] end
  local since = row.record and row.record[5] or now
  -- First of all: a server that is out of memory refuses this one, and nothing was written.
  -- Where another request joins a grant, the lock stays that of the request that took it.
  local taken_by = row.ours and row.record and row.record[7] or request
  save_fence(at, takes and math.max(last, row.last) or row.last, {tag, proposed, fences, lease, since, about, taken_by})
  local ms = lease
  if row.ours then
    if row.left ~= -1 then ms = row.left end
  else
    take(KEYS[at + 1], owner, request, 1, lease)
  end
  left = math.min(left, ms)
  strike(KEYS[at + 4], KEYS[at + 5], client)
end
return {takes and 'took' or 'held', now, recovers, left, known}

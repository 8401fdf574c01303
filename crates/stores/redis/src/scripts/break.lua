-- Takes a lock away from its holder. KEYS of one name. ARGV: name, `now` or `end`, the fence that must hold it (or nothing), whether
-- another program's value may be taken away (1 or 0), whether the fences of the name begin again from the clock (1 or 0).
-- Answers {verdict, clock, clients that wait, who held it}. Verdicts: `done`; `other`, another fence holds it or it lingers; `foreign`,
-- it is another program's and was not to be touched; `endless`, it is another program's and has no lease that could run out.
-- Where another program's value stands at the key of its fence, and that was to be reset: {`fence`, clock, key}.
-- With a fence, a free name is left as it is, its fences too.

local lock, fence_key, record_key, line, heard = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local before, holders = describe(lock, fence_key, record_key)
local left, family = before[1], before[2]

-- Whether somebody holds it, and under this fence alone. A lock that lingers is described with no holds.
local function is_held_under(fence)
  for at = 3, #before do
    local holder = before[at]
    if holder[2] == 0 or not holder[6] or whole(holder[6]) ~= fence then return false end
  end
  return #before > 2
end

local verdict = 'done'
if left ~= -2 then
  if ARGV[3] ~= '' and not is_held_under(ARGV[3]) then
    verdict = 'other'
  elseif family == FOREIGN and ARGV[4] ~= '1' then
    verdict = 'foreign'
  elseif family == FOREIGN and ARGV[2] == 'end' and (left == -1 or not ENDS_STRANGERS) then
    verdict = 'endless'
  end
end

-- As `insist`: nobody has this name.
try_call('ZREM', line, 'leasehold:nobody')
local waiting = is_list(line) and count_line(line, heard) or 0
local is_free_anyway = left == -2 and ARGV[3] ~= ''
if verdict ~= 'done' or is_free_anyway then return {verdict, now, waiting, before} end
-- A string that is no fence is a damaged record. A value of another type is another program's.
if ARGV[5] == '1' and not beginning_of(fence_key, 0) then return {'fence', now, fence_key} end
-- A user who may not read the record is refused before anything has changed.
text_at(record_key)

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
  hint(line, ARGV[1])
  announce(KEYS[7])
end
return {verdict, now, waiting, before}

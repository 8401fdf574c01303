-- What the rest of a script is made of: records, and the holds of an owner that several clients share.

-- The place of the last byte that is read of a record: a stranger's string has any size.
local TEXT_LAST = 4194303

-- Passes over the fault that a value is of another type. Any other one, such as a right that this user lacks, says nothing about the
-- value, and ends the script. Old servers raise a text.
local function expect_wrong_type(fault)
  if not find(type(fault) == 'table' and fault.err or fault, 'WRONGTYPE', 1, true) then error(fault) end
end

-- The beginning of a string, up to the byte at `last`: '' where there is none, and nothing where the value is no string.
local function beginning_of(key, last)
  local text = try_call('GETRANGE', key, 0, last)
  if type(text) == 'string' then return text end
  expect_wrong_type(text)
end

local function text_at(key) return beginning_of(key, TEXT_LAST) or '' end

-- The last fence on record: 0 where there is none, and beyond every other where the value at its key is no fence.
local function fence_at(key)
  local text = beginning_of(key, FENCE_LAST)
  if not text or text == '' then return call('EXISTS', key) == 0 and 0 or math.huge end
  -- A server of a quorum has none yet where it took a lock without its fences.
  local last = find(text, '^%+0 %d') and -1 or fence_in(text)
  if last == 0 then return math.huge end
  return math.max(last, 0)
end


-- Whether fences may go on from here: nobody counted so far, or could count on.
local function is_unfit(last, clock) return not (last < math.min(clock + AHEAD_MAX, EXACT)) end

-- How an unfit fence is told: as a number, as '' where a string is no fence, and as `WRONGTYPE` where the value is no string.
local function told_unfit(last, key)
  if last ~= math.huge then return whole(last) end
  return beginning_of(key, 0) and '' or 'WRONGTYPE'
end

-- A record that somebody damaged is as good as none.
local function record_in(text, tag)
  local last, fences, lease, request, about = string.match(text, '^(%d+) (%d+) (%d+) (%S*) p\n(.*)$')
  local first, since, kept
  if last then
    kept = 'p' .. request
    if fences == '0' then
      first, fences, since = last, 1, FENCE_EPOCH + (last - JUMP) / 8
    else
      first = last - fences + 1
      since = FENCE_EPOCH + first / 8
    end
    if first - 1 < 0 then return end
  else
    first, fences, lease, since, request, kept, about =
      string.match(text, '^%+%d+ (%d+) (%d+) (%d+) (%d+) (%S*) ([^\n]*)\n(.*)$')
  end
  if not kept or tag and kept ~= tag then return end
  local record = {kept, tonumber(first), tonumber(fences), tonumber(lease), tonumber(since), about, request}
  for at = 2, 5 do
    if not (record[at] <= EXACT) then return end
  end
  return record
end

-- The same for an owner that several clients share, whatever else it says: it begins with a tag.
local function tagged_in(packed)
  if packed == '' then return end
  local ok, record, more = pcall(cmsgpack.unpack, packed)
  if not ok or type(record) ~= 'table' or more ~= nil then return end
  if type(record[1]) == 'string' and string.byte(record[1]) == 115 then return record end
end

-- Holds may end later than fences can count.
local END_MAX, ABOUT_MAX = EXACT * 1000, 65536

local function is_between(number, least, most) return type(number) == 'number' and number >= least and number <= most end

-- Whether the parts of a shared owner's record are what they are read as: it is looked at once, here, and believed from then on.
local function is_sound(record)
  local holds, given = record[7], record[8]
  for at = 2, 5 do
    if not is_between(record[at], 0, EXACT) then return false end
  end
  if type(record[6]) ~= 'string' or #record[6] > ABOUT_MAX or not is_between(record[9], 0, END_MAX) then return false end
  if type(holds) ~= 'table' or type(given) ~= 'table' or #holds % 2 ~= 0 or #given > GIVEN_MAX then return false end
  for at = 1, #holds, 2 do
    if type(holds[at]) ~= 'string' or not is_between(holds[at + 1], 0, END_MAX) then return false end
  end
  for at = 1, #given do
    if type(given[at]) ~= 'string' then return false end
  end
  return true
end

-- One that somebody damaged is as good as none here, too.
local function shared_record_in(packed, tag)
  local record = tagged_in(packed)
  if record and is_sound(record) and (not tag or record[1] == tag) then return record end
end

local function text_beside(fence, record)
  local grant = {whole(fence), whole(record[2]), whole(record[3]), whole(record[4]), whole(record[5]), record[7], record[1]}
  return '+' .. table.concat(grant, ' ') .. '\n' .. record[6]
end

local function ms_until(moment) return math.ceil((moment - now) / 1000) end

-- A server that is out of memory refuses a script's first write where it needs memory, and no later one. What is held must be kept,
-- counted and given back there too: such steps begin with a write that needs none. For the hash of a lock that is held.
local function insist(lock) call('HDEL', lock, '') end

-- A user who lacks a right is refused here, before the holds of a shared owner change: else the count and the record would differ.
local function check_rights(lock, record_key, left)
  if left > 0 then call('PEXPIRE', lock, left) end
  call('SET', record_key, text_at(record_key), 'KEEPTTL')
end

-- Holds of a shared owner are kept as request, end, request, end, …; those that have ended are left out.
local function live_holds(record)
  local live = {}
  local holds = record[7]
  for at = 1, #holds, 2 do
    if holds[at + 1] > now then
      live[#live + 1] = holds[at]
      live[#live + 1] = holds[at + 1]
    end
  end
  return live
end

local function place_of(list, wanted, step)
  for at = 1, #list, step do
    if list[at] == wanted then return at end
  end
end

local function last_end(holds)
  local last = 0
  for at = 2, #holds, 2 do last = math.max(last, holds[at]) end
  return last
end

-- Holds under a shared owner's name that some other library took, and that only the count tells of.
local function foreign_holds(count, record) return math.max(0, count - #record[7] / 2) end

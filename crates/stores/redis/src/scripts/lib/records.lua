-- Fences, records of grants, and the holds of an owner that several clients share.

-- Index of the last byte that is read of a record: another program's string may be of any size.
local TEXT_LAST = 4194303

-- Ignores the error that a value is of another type. Any other error, such as a missing right, says nothing about the
-- value and ends the script. Old servers raise a string.
local function expect_wrong_type(fault)
  if not find(type(fault) == 'table' and fault.err or fault, 'WRONGTYPE', 1, true) then error(fault) end
end

-- The string at a key up to the byte at `last`: '' if the key does not exist, nil if its value is not a string.
local function read_prefix(key, last)
  local text = try_call('GETRANGE', key, 0, last)
  if type(text) == 'string' then return text end
  expect_wrong_type(text)
end

local function read_text(key) return read_prefix(key, TEXT_LAST) or '' end

-- The last fence on record: 0 if there is none, infinity if the value at the key is not a fence.
local function read_fence(key)
  local text = read_prefix(key, FENCE_LAST)
  if not text or text == '' then return call('EXISTS', key) == 0 and 0 or math.huge end
  -- A quorum's server that accepted a lock without its fences has recorded none yet.
  local last = find(text, '^%+0 %d') and -1 or parse_fence(text)
  if last == 0 then return math.huge end
  return math.max(last, 0)
end

-- Whether fences cannot continue from here: no clock produced this one, or counting on would lose digits.
local function is_unfit(last, clock) return not (last < math.min(clock + AHEAD_MAX, EXACT)) end

-- An unfit fence for a reply: the number, '' for a string that is not a fence, `WRONGTYPE` for a value that is not a
-- string.
local function describe_unfit(last, key)
  if last ~= math.huge then return format_integer(last) end
  return read_prefix(key, 0) and '' or 'WRONGTYPE'
end

-- A damaged record counts as missing.
local function parse_record(text, tag)
  local last, fences, lease, request, about = string.match(text, '^(%d+) (%d+) (%d+) (%S*) p\n(.*)$')
  local first, since, stored_tag
  if last then
    stored_tag = 'p' .. request
    if fences == '0' then
      first, fences, since = last, 1, FENCE_EPOCH + (last - JUMP) / 8
    else
      first = last - fences + 1
      since = FENCE_EPOCH + first / 8
    end
    if first - 1 < 0 then return end
  else
    first, fences, lease, since, request, stored_tag, about =
      string.match(text, '^%+%d+ (%d+) (%d+) (%d+) (%d+) (%S*) ([^\n]*)\n(.*)$')
  end
  if not stored_tag or tag and stored_tag ~= tag then return end
  local record = {stored_tag, tonumber(first), tonumber(fences), tonumber(lease), tonumber(since), about, request}
  for at = 2, 5 do
    if not (record[at] <= EXACT) then return end
  end
  return record
end

-- A shared owner's record, possibly damaged: only its tag has been checked.
local function unpack_record(packed)
  if packed == '' then return end
  local ok, record, more = pcall(cmsgpack.unpack, packed)
  if not ok or type(record) ~= 'table' or more ~= nil then return end
  if type(record[1]) == 'string' and string.byte(record[1]) == 115 then return record end
end

-- Holds may end later than fences can count.
local END_MAX, ABOUT_MAX = EXACT * 1000, 65536

local function is_between(number, least, most)
  return type(number) == 'number' and number >= least and number <= most
end

-- Whether every part of a shared owner's record has its type and range. This is the only check; later code relies on
-- it.
local function is_well_formed(record)
  local holds, released = record[7], record[8]
  for at = 2, 5 do
    if not is_between(record[at], 0, EXACT) then return false end
  end
  if type(record[6]) ~= 'string' or #record[6] > ABOUT_MAX or not is_between(record[9], 0, END_MAX) then
    return false
  end
  if type(holds) ~= 'table' or type(released) ~= 'table' or #holds % 2 ~= 0 or #released > RELEASED_MAX then
    return false
  end
  for at = 1, #holds, 2 do
    if type(holds[at]) ~= 'string' or not is_between(holds[at + 1], 0, END_MAX) then return false end
  end
  for at = 1, #released do
    if type(released[at]) ~= 'string' then return false end
  end
  return true
end

-- A shared owner's record. A damaged one counts as missing.
local function parse_shared_record(packed, tag)
  local record = unpack_record(packed)
  if record and is_well_formed(record) and (not tag or record[1] == tag) then return record end
end

local function record_text(fence, record)
  local grant = {
    format_integer(fence), format_integer(record[2]), format_integer(record[3]), format_integer(record[4]),
    format_integer(record[5]), record[7], record[1]
  }
  return '+' .. table.concat(grant, ' ') .. '\n' .. record[6]
end

local function ms_until(moment) return math.ceil((moment - now) / 1000) end

-- A server that is out of memory refuses a script's first write if that write needs memory, and accepts every later
-- one. Locks must still be renewed, re-entered and released there, so those steps begin with a write that needs none.
-- The lock is a hash that exists.
local function begin_writes(lock) call('HDEL', lock, '') end

-- A user without the rights is refused here, before the holds of a shared owner change. Otherwise the count and the
-- record would differ.
local function check_rights(lock, record_key, left)
  if left > 0 then call('PEXPIRE', lock, left) end
  call('SET', record_key, read_text(record_key), 'KEEPTTL')
end

-- A shared owner's holds are a flat list: request, end, request, end, … Holds that have ended are left out.
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

local function index_of(list, wanted, step)
  for at = 1, #list, step do
    if list[at] == wanted then return at end
  end
end

local function latest_end(holds)
  local last = 0
  for at = 2, #holds, 2 do last = math.max(last, holds[at]) end
  return last
end

-- The number of holds that another library took under a shared owner's name. Only the lock's count includes them.
local function foreign_holds(count, record) return math.max(0, count - #record[7] / 2) end

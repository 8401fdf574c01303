-- The layout of Redisson: the lock is a hash from owner to count.
--
-- The one rule for what is a lock, here and in first_redisson.lua: a hash with one field, whose value is a count, and whose name is an
-- owner as leasehold and Redisson generate them, one of the marks that leasehold makes, or an explicit owner that the record beside it
-- names. Redisson's read-write lock has a field `mode` as well, and is another family. Nothing writes to any other hash.

-- A hash with more fields than this is not looked at more closely.
local FIELDS_MAX = 64
-- The longest owner, with the mark of a broken lock.
local OWNER_MAX = 320
local COUNT_MAX, COUNT_DIGITS = 4294967295, 10
local GENERATED = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d+'

-- Inside a transaction of Redisson's, an owner ends with its id.
local function is_generated(owner)
  local _, last = find(owner, GENERATED)
  return last and (last == #owner or find(owner, '^:%x+$', last + 1) ~= nil)
end

-- The count in a field of ours, or nothing.
local function own_count_in(key, field)
  local text = call('HGET', key, field)
  local count = text and find(text, '^[1-9]%d*$') and tonumber(text)
  if count and count <= COUNT_MAX then return count end
end

-- The same of any field. Its length is asked for first: a stranger's has any size.
local function count_in(key, field)
  local length = call('HSTRLEN', key, field)
  if length > 0 and length <= COUNT_DIGITS then return own_count_in(key, field) end
end

local function is_shared(tag) return string.byte(tag) == 115 end

-- The record of a shared owner, unless another was granted the lock since: somebody deleted it then, and the owner may have come back by
-- another library.
local function live_record(fence_key, record_key, tag)
  local record = shared_record_in(text_at(record_key), tag)
  if record and fence_in(text_at(fence_key)) < record[2] + record[3] then return record end
end

local function load_record(fence_key, record_key, tag)
  if is_shared(tag) then return live_record(fence_key, record_key, tag) end
  return record_in(text_at(fence_key), tag)
end

-- How many holds the owner has and the record of its grant, or nothing. `kept_as` is the owner or its mark where the lock is broken. An
-- asking of one client is an owner of its own, so the request tells nothing new.
local function holds_of(lock, fence_key, record_key, tag, kept_as, request)
  local shared = is_shared(tag)
  -- Any program may have a field with the name of a shared owner, of any size. The others' names are ours alone.
  local count = (shared and count_in or own_count_in)(lock, kept_as)
  if not count or call('HLEN', lock) ~= 1 then return end
  local record = load_record(fence_key, record_key, tag)
  if shared and not record then return end
  return count, record
end

-- Takes our own field out of a hash that has others beside it, as Redisson's write lock: says whether it was there.
local function take_out(lock, fence_key, record_key, tag, fence)
  local size, owner = call('HLEN', lock), string.sub(tag, 2)
  if size < 2 or size > FIELDS_MAX or not count_in(lock, owner) then return false end
  local record = load_record(fence_key, record_key, tag)
  if not record or whole(record[2]) ~= fence then return false end
  call('HDEL', lock, owner)
  if is_shared(tag) then call('DEL', record_key) end
  return true
end

-- Whether something stands where a shared owner's record must be written, and is none.
local function is_record_foreign(record_key)
  return call('EXISTS', record_key) == 1 and not shared_record_in(text_at(record_key))
end

-- Deletes what is left of a shared owner's record, and nothing else.
local function forget_record(record_key)
  if shared_record_in(text_at(record_key)) then call('DEL', record_key) end
end

-- An operator wants to be rid of it: one that was damaged goes too. Another program's value stays.
local function discard_record(record_key)
  if tagged_in(text_at(record_key)) then call('DEL', record_key) end
end

local function linger_on(key, ms)
  call('DEL', key)
  take(key, LINGER, '', 1, ms)
end

-- What is shown of a hash that is no lock.
local function foreign_hash(size, fields)
  local shown = {}
  for at = 1, math.min(#fields, 3) do shown[at] = string.sub(fields[at], 1, 32) end
  local names = #shown > 0 and ': ' .. table.concat(shown, ', ') .. (size > #shown and ', …' or '') or ''
  return {{'a hash with ' .. size .. (size == 1 and ' field' or ' fields') .. names, 1}}
end

local function is_mode(key)
  if call('HSTRLEN', key, 'mode') > 5 then return false end
  local mode = call('HGET', key, 'mode')
  return mode == 'read' or mode == 'write'
end

-- Which family of lock stands at a key that is there, and its holders as {owner as kept, count}.
local function look(lock, fence_key, record_key)
  local size = call('HLEN', lock)
  -- A damaged record still tells whose lock it is.
  local function is_damaged_record_of(field)
    local record = tagged_in(text_at(record_key))
    return record and record[1] == 's' .. field and not is_sound(record)
  end
  if size > FIELDS_MAX then return FOREIGN, foreign_hash(size, {}) end
  local fields, found, family = call('HKEYS', lock), {}, OURS
  local function is_owner(field)
    return field == LINGER or string.sub(field, 1, #BROKEN) == BROKEN or is_generated(field) or
      live_record(fence_key, record_key, 's' .. field) ~= nil or is_damaged_record_of(field)
  end
  for _, field in ipairs(fields) do
    if field == 'mode' and size > 1 then
      family = READ_WRITE
    else
      local count = #field <= OWNER_MAX and count_in(lock, field)
      local is_write = size > 1 and string.sub(field, -6) == ':write' and is_generated(string.sub(field, 1, -7))
      if not count or not (is_write or is_owner(field)) then return FOREIGN, foreign_hash(size, fields) end
      if field ~= LINGER then found[#found + 1] = {field, count} end
    end
  end
  if size == 1 or family == READ_WRITE and is_mode(lock) then return family, found end
  return FOREIGN, foreign_hash(size, fields)
end

-- Ends the right of whoever holds it, and leaves the lock to its lease.
local function break_at_end(key, holders)
  -- Whoever may not take a field out is refused before one more is there.
  insist(key)
  for _, kept in ipairs(holders) do
    local owner, count = kept[1], kept[2]
    if string.sub(owner, 1, #BROKEN) ~= BROKEN then
      -- In this order: a hash without fields is gone, and its lease with it.
      call('HSET', key, BROKEN .. owner, count)
      call('HDEL', key, owner)
    end
  end
end

-- Nothing tells that renaming the fields of another program's hash ends anybody's right.
local ENDS_STRANGERS = false

local function is_of(tag, owner) return string.sub(tag, 2) == owner end

-- All records, the newest first. That of a shared owner may be left over from a lock that somebody deleted.
local function all_records(fence_key, record_key)
  local shared, private = shared_record_in(text_at(record_key)), record_in(text_at(fence_key))
  if shared and private and private[5] > shared[5] then return {private, shared} end
  return {shared or private, shared and private}
end

-- Redisson's own token, where there is one. It counts up with INCR: what that would not write is another program's, and left alone.
local function token_in(text)
  if text and (text == '0' or find(text, '^[1-9]%d*$')) then return tonumber(text) end
end

-- The largest fence given out: ours, or Redisson's own token.
local function last_fence(at)
  local texts = call('MGET', KEYS[at + 2], KEYS[at + 6])
  local token = token_in(texts[2])
  return math.max(last_in(texts[1], KEYS[at + 2]), token or 0), token
end

-- The fences of the name begin again from the clock. A token of Redisson's is set there only where nobody could count on from it.
local function reset_fences()
  local clock, token = (now - FENCE_EPOCH) * 8, token_in(call('MGET', KEYS[6])[1])
  call('DEL', KEYS[2])
  if token and is_unfit(token, clock) then call('SET', KEYS[6], whole(clock), 'KEEPTTL') end
end

local function save_fence(at, fence, record, token)
  local beside = is_shared(record[1]) and '+' .. whole(fence) or text_beside(fence, record)
  call('SET', KEYS[at + 2], beside, 'PX', FENCES_KEPT_MS)
  if token then call('SET', KEYS[at + 6], whole(fence), 'KEEPTTL') end
end

-- Of a shared owner.
local function save_record(key, record, ms) call('SET', key, cmsgpack.pack(record), 'PX', ms) end

-- What stands at a lock's key in the layout of Redisson, for people and for a break.

-- The longest owner, with the mark of a broken lock.
local OWNER_MAX = 320
local GENERATED = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d+'

-- Inside a transaction of Redisson's, an owner ends with its id.
local function is_generated(owner)
  local _, last = find(owner, GENERATED)
  return last and (last == #owner or find(owner, '^:%x+$', last + 1) ~= nil)
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

-- An operator wants to be rid of it: one that was damaged goes too. Another program's value stays.
local function discard_record(record_key)
  if tagged_in(text_at(record_key)) then call('DEL', record_key) end
end

-- The fences of the name begin again from the clock. A token of Redisson's is set there only where nobody could count on from it.
local function reset_fences()
  local clock, token = (now - FENCE_EPOCH) * 8, token_at(KEYS[6])
  call('DEL', KEYS[2])
  if token and is_unfit(token, clock) then call('SET', KEYS[6], whole(clock), 'KEEPTTL') end
end

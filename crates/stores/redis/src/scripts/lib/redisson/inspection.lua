-- Redisson's layout: reads what is at a lock's key, for `inspect`, refusals and `break`.

-- The longest owner, including the marker of a broken lock.
local OWNER_MAX = 320
local GENERATED = '^%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%-?%d+'

-- Inside one of Redisson's transactions, the owner ends with the transaction's id.
local function is_generated(owner)
  local _, last = find(owner, GENERATED)
  return last and (last == #owner or find(owner, '^:%x+$', last + 1) ~= nil)
end

-- The description of a hash that is not a lock.
local function describe_foreign(size, fields)
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

-- Returns the family of the value at an existing key, and its holders as {owner as stored, count}.
local function read_holders(lock, fence_key, record_key)
  local size = call('HLEN', lock)
  -- A damaged record still names the lock's owner.
  local function is_damaged_record_of(field)
    local record = unpack_record(read_text(record_key))
    return record and record[1] == 's' .. field and not is_well_formed(record)
  end
  if size > FIELDS_MAX then return FOREIGN, describe_foreign(size, {}) end
  local fields, found, family = call('HKEYS', lock), {}, OURS
  local function is_owner(field)
    return field == COOLDOWN or string.sub(field, 1, #BROKEN) == BROKEN or is_generated(field) or
      load_shared_record(fence_key, record_key, 's' .. field) ~= nil or is_damaged_record_of(field)
  end
  for _, field in ipairs(fields) do
    if field == 'mode' and size > 1 then
      family = READ_WRITE
    else
      local count = #field <= OWNER_MAX and read_count(lock, field)
      local is_write = size > 1 and string.sub(field, -6) == ':write' and is_generated(string.sub(field, 1, -7))
      if not count or not (is_write or is_owner(field)) then return FOREIGN, describe_foreign(size, fields) end
      if field ~= COOLDOWN then found[#found + 1] = {field, count} end
    end
  end
  if size == 1 or family == READ_WRITE and is_mode(lock) then return family, found end
  return FOREIGN, describe_foreign(size, fields)
end

-- Marks the holders as broken, and leaves the lock to its lease.
local function break_at_end(key, holders)
  -- A user without the right to remove a field is refused here, before a field is added.
  begin_writes(key)
  for _, stored in ipairs(holders) do
    local owner, count = stored[1], stored[2]
    if string.sub(owner, 1, #BROKEN) ~= BROKEN then
      -- In this order: a hash that loses its last field is deleted, and its lease with it.
      call('HSET', key, BROKEN .. owner, count)
      call('HDEL', key, owner)
    end
  end
end

-- Renaming the fields of another program's hash is not known to end its holder's right.
local CAN_END_FOREIGN = false

local function is_tag_of(tag, owner) return string.sub(tag, 2) == owner end

-- All records, the newest first. A shared owner's record may be left over from a lock that was deleted by hand.
local function load_all_records(fence_key, record_key)
  local shared, private = parse_shared_record(read_text(record_key)), parse_record(read_text(fence_key))
  if shared and private and private[5] > shared[5] then return {private, shared} end
  return {shared or private, shared and private}
end

-- Deletes a shared owner's record for an operator, even if it is damaged. Another program's value stays.
local function discard_record(record_key)
  if unpack_record(read_text(record_key)) then call('DEL', record_key) end
end

-- Lets the fences of the name start again from the clock. Redisson's token is set to the clock only if it is unfit.
local function reset_fences()
  local clock, token = (now - FENCE_EPOCH) * 8, read_token(KEYS[6])
  call('DEL', KEYS[2])
  if token and is_unfit(token, clock) then call('SET', KEYS[6], format_integer(clock), 'KEEPTTL') end
end

-- Redisson's layout: who owns a lock, and where its fences and records are stored.
--
-- The rule for what a lock is, here and in lib/redisson/lock.lua: a hash with one field, whose value is a count. The
-- field is an owner as leasehold and Redisson generate them, one of leasehold's markers, or an explicit owner that the
-- record names. Redisson's read-write lock also has a field `mode` and belongs to another family. No script writes to
-- any other hash.

-- A hash with more fields than this is not read.
local FIELDS_MAX = 64
local COUNT_MAX, COUNT_DIGITS = 4294967295, 10

-- The count in a field that only leasehold writes, or nil.
local function read_own_count(key, field)
  local text = call('HGET', key, field)
  local count = text and find(text, '^[1-9]%d*$') and tonumber(text)
  if count and count <= COUNT_MAX then return count end
end

-- The count in any field, or nil. The length is checked first: another program's value may be of any size.
local function read_count(key, field)
  local length = call('HSTRLEN', key, field)
  if length > 0 and length <= COUNT_DIGITS then return read_own_count(key, field) end
end

local function is_shared(tag) return string.byte(tag) == 115 end

-- The record of a shared owner, unless the lock was granted to another owner since. In that case the lock was deleted
-- by hand, and the owner may have come back through another library.
local function load_shared_record(fence_key, record_key, tag)
  local record = parse_shared_record(read_text(record_key), tag)
  if record and parse_fence(read_text(fence_key)) < record[2] + record[3] then return record end
end

local function load_record(fence_key, record_key, tag)
  if is_shared(tag) then return load_shared_record(fence_key, record_key, tag) end
  return parse_record(read_text(fence_key), tag)
end

-- Returns how many holds the owner has, and the record of its grant; or nil. `stored_owner` is the owner, with the
-- marker of a broken lock if it is one. A private owner is unique per acquire, so the request adds nothing.
local function find_holds(lock, fence_key, record_key, tag, stored_owner, request)
  local shared = is_shared(tag)
  -- Any program may have a field with a shared owner's name, of any size. Generated owners are ours alone.
  local count = (shared and read_count or read_own_count)(lock, stored_owner)
  if not count or call('HLEN', lock) ~= 1 then return end
  local record = load_record(fence_key, record_key, tag)
  if shared and not record then return end
  return count, record
end

-- Removes our own field from a hash that has other fields too, such as Redisson's write lock. Returns whether it
-- existed.
local function remove_own_field(lock, fence_key, record_key, tag, fence)
  local size, owner = call('HLEN', lock), string.sub(tag, 2)
  if size < 2 or size > FIELDS_MAX or not read_count(lock, owner) then return false end
  local record = load_record(fence_key, record_key, tag)
  if not record or format_integer(record[2]) ~= fence then return false end
  call('HDEL', lock, owner)
  if is_shared(tag) then call('DEL', record_key) end
  return true
end

-- Whether another program's value stands where a shared owner's record has to be written.
local function is_record_foreign(record_key)
  return call('EXISTS', record_key) == 1 and not parse_shared_record(read_text(record_key))
end

-- Deletes a shared owner's record, and no other value.
local function delete_record(record_key)
  if parse_shared_record(read_text(record_key)) then call('DEL', record_key) end
end

local function start_cooldown(key, ms)
  call('DEL', key)
  write_lock(key, COOLDOWN, '', 1, ms)
end

-- Redisson's own token, if there is one. Redisson increments it with INCR; a value that INCR would not write is another
-- program's.
local TOKEN_DIGITS = 19
local function read_token(key)
  local text = read_prefix(key, TOKEN_DIGITS)
  if text and #text <= TOKEN_DIGITS and (text == '0' or find(text, '^[1-9]%d*$')) then return tonumber(text) end
end

-- The largest fence that was granted, ours or Redisson's token.
local function last_fence(at)
  local token = read_token(KEYS[at + 6])
  return math.max(read_fence(KEYS[at + 2]), token or 0), token
end

local function save_fence(at, fence, record, token)
  local text = is_shared(record[1]) and '+' .. format_integer(fence) or record_text(fence, record)
  call('SET', KEYS[at + 2], text, 'PX', FENCES_KEPT_MS)
  if token then call('SET', KEYS[at + 6], format_integer(fence), 'KEEPTTL') end
end

-- Saves the record of a shared owner.
local function save_record(key, record, ms) call('SET', key, cmsgpack.pack(record), 'PX', ms) end

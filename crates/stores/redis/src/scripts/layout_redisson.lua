-- The layout of Redisson: the lock is a hash from owner to count.

-- A hash with more fields than this is no lock, and is not looked at more closely.
local FIELDS_MAX = 64

-- What stands in a field need not be a count.
local function counted(text)
  local count = tonumber(text)
  return count and count >= 1 and count <= 4294967295 and math.floor(count) or 1
end

-- How many holds the owner has, or nothing. An asking of one client is an owner of its own, so the request tells nothing new.
local function holds_of(key, owner, request)
  local count = call('HGET', key, owner)
  return count and counted(count) or nil
end

local function is_shared(tag) return string.byte(tag) == 115 end

local function linger_on(key, ms)
  call('DEL', key)
  take(key, LINGER, '', 1, ms)
end

-- Ends the right of whoever holds it, and leaves the lock to its lease.
local function break_at_end(key)
  if call('HLEN', key) > FIELDS_MAX then return end
  local fields = call('HGETALL', key)
  for at = 1, #fields, 2 do
    local owner = fields[at]
    if owner ~= LINGER and owner ~= 'mode' and string.sub(owner, 1, #BROKEN) ~= BROKEN then
      -- In this order: a hash without fields is gone, and its lease with it.
      call('HSET', key, BROKEN .. owner, fields[at + 1])
      call('HDEL', key, owner)
    end
  end
end

-- Owners and counts, as they are kept.
local function owners(key)
  local size = call('HLEN', key)
  if size > FIELDS_MAX then return {{'(a hash of ' .. size .. ' fields)', 1}} end
  local found = {}
  local fields = call('HGETALL', key)
  for at = 1, #fields, 2 do
    if fields[at] ~= 'mode' and fields[at] ~= LINGER then found[#found + 1] = {fields[at], counted(fields[at + 1])} end
  end
  return found
end

local function is_of(tag, owner) return string.sub(tag, 2) == owner end

-- The largest fence given out: ours, or Redisson's own token where there is one.
local function last_fence(at)
  local both = call('MGET', KEYS[at + 2], KEYS[at + 6])
  local token = tonumber(both[2] or nil)
  return math.max(fence_in(both[1]), token or 0), token
end

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

-- All records, the newest first. That of a shared owner may be left over from a lock that somebody deleted.
local function all_records(fence_key, record_key)
  local shared, private = shared_record_in(text_at(record_key)), record_in(text_at(fence_key))
  if shared and private and private[5] > shared[5] then return {private, shared} end
  return {shared or private, shared and private}
end

local function save_fence(at, fence, record, token)
  local beside = is_shared(record[1]) and '+' .. whole(fence) or text_beside(fence, record)
  call('SET', KEYS[at + 2], beside, 'PX', FENCES_KEPT_MS)
  if token then call('SET', KEYS[at + 6], whole(fence), 'KEEPTTL') end
end

-- Of a shared owner.
local function save_record(key, record, ms) call('SET', key, cmsgpack.pack(record), 'PX', ms) end

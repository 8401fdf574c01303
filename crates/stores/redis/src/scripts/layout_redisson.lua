-- The layout of Redisson: the lock is a hash from owner to count.
--
-- The one rule for what is a lock, here and in first_redisson.lua: a hash with one field, whose value is a count, and whose name is an
-- owner as leasehold and Redisson generate them, one of the marks that leasehold makes, or an explicit owner that the record beside it
-- names. Redisson's read-write lock has a field `mode` as well, and is another family. Nothing writes to any other hash.

-- A hash with more fields than this is not looked at more closely.
local FIELDS_MAX = 64
local COUNT_MAX, COUNT_DIGITS = 4294967295, 10
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

local function linger_on(key, ms)
  call('DEL', key)
  take(key, LINGER, '', 1, ms)
end

-- Redisson's own token, where there is one. It counts up with INCR: what that would not write is another program's, and left alone.
local TOKEN_DIGITS = 19
local function token_at(key)
  local text = beginning_of(key, TOKEN_DIGITS)
  if text and #text <= TOKEN_DIGITS and (text == '0' or find(text, '^[1-9]%d*$')) then return tonumber(text) end
end

-- The largest fence given out: ours, or Redisson's own token.
local function last_fence(at)
  local token = token_at(KEYS[at + 6])
  return math.max(fence_at(KEYS[at + 2]), token or 0), token
end

local function save_fence(at, fence, record, token)
  local beside = is_shared(record[1]) and '+' .. whole(fence) or text_beside(fence, record)
  call('SET', KEYS[at + 2], beside, 'PX', FENCES_KEPT_MS)
  if token then call('SET', KEYS[at + 6], whole(fence), 'KEEPTTL') end
end

-- Of a shared owner.
local function save_record(key, record, ms) call('SET', key, cmsgpack.pack(record), 'PX', ms) end

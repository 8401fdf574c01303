-- The plain layout: who owns a lock, and where its fences and records are stored.
--
-- The lock is a string, as `SET name value NX PX lease` makes it. The rule for what a lock of ours is, here and in
-- lib/plain/lock.lua: `<owner>/<uuid>:<number>`, or one of leasehold's markers. No script writes to any other string.

local REQUEST = '/%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+$'

-- An owner may contain slashes; a request does not.
local function owner_in(value) return string.match(value, '^(.+)' .. REQUEST) end

local function is_shared() return false end

local function load_record(fence_key, _, tag) return parse_record(read_text(fence_key), tag) end

-- Returns 1 and the record of the grant if this request holds the lock, else nil. An empty request stands for any
-- request of the owner. `stored_owner` is the owner, with the marker of a broken lock if it is one.
local function find_holds(lock, fence_key, record_key, tag, stored_owner, request)
  local value = call('GETRANGE', lock, 0, VALUE_LAST)
  local is_ours = request ~= '' and value == stored_owner .. '/' .. request or
    request == '' and owner_in(value) == stored_owner
  if is_ours then return 1, load_record(fence_key, record_key, tag) end
end

-- A string has no other fields.
local function remove_own_field() return false end

local function start_cooldown(key, ms)
  -- DEL comes first: a server that is out of memory accepts it, and then the write that follows.
  call('DEL', key)
  call('SET', key, COOLDOWN, 'PX', ms)
end

local function last_fence(at) return read_fence(KEYS[at + 2]) end

local function save_fence(at, fence, record)
  call('SET', KEYS[at + 2], record_text(fence, record), 'PX', FENCES_KEPT_MS)
end

-- This layout has no shared owners, so the functions for their records do nothing.
local function save_record() end

local function is_record_foreign() return false end

local function delete_record() end

local function load_shared_record() end

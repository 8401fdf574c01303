-- The plain layout: the lock is a string that names its owner and request, as `SET name value NX PX lease` makes it.
--
-- The one rule for what is a lock of ours, here and in first_plain.lua: `<owner>/<uuid>:<number>`, or one of the marks that leasehold
-- makes. Nothing writes to any other string.

local REQUEST = '/%x%x%x%x%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%x%x%x%x%x%x%x%x:%d+$'

-- An owner may have slashes in it, a request has none.
local function owner_in(value) return string.match(value, '^(.+)' .. REQUEST) end

local function is_shared() return false end

local function load_record(fence_key, _, tag) return record_in(text_at(fence_key), tag) end

-- 1 and the record of the grant where the lock is of this request (of any request of this owner, where it is not known), or nothing.
-- `kept_as` is the owner, or its mark where the lock is broken.
local function holds_of(lock, fence_key, record_key, tag, kept_as, request)
  local value = call('GETRANGE', lock, 0, VALUE_LAST)
  local is_ours = request ~= '' and value == kept_as .. '/' .. request or request == '' and owner_in(value) == kept_as
  if is_ours then return 1, load_record(fence_key, record_key, tag) end
end

-- A string has nothing beside it.
local function take_out() return false end

local function linger_on(key, ms)
  -- First, because a server that is out of memory lets it through, and what follows it.
  call('DEL', key)
  call('SET', key, LINGER, 'PX', ms)
end

local function last_fence(at) return fence_at(KEYS[at + 2]) end

local function save_fence(at, fence, record)
  call('SET', KEYS[at + 2], text_beside(fence, record), 'PX', FENCES_KEPT_MS)
end

-- Here there are no records of shared owners.
local function save_record() end

local function is_record_foreign() return false end

local function forget_record() end

local function live_record() end

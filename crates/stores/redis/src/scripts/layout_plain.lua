-- The plain layout: the lock is a string that names its owner and request, as `SET name value NX PX lease` makes it.


-- An owner may have slashes in it, a request has none. What does not end in a request is another library's, and has no owner of ours.
local function owner_in(value) return string.match(value, '^(.*)/[%x-]+:%d+$') end

-- 1 where the lock is of this request (of any request of this owner, where it is not known), or nothing.
local function holds_of(key, owner, request)
  local value = call('GET', key)
  if not value then return nil end
  if request ~= '' then return value == owner .. '/' .. request and 1 or nil end
  return owner_in(value) == owner and 1 or nil
end

local function is_shared() return false end

local function linger_on(key, ms)
  -- First, because a server that is out of memory lets it through, and what follows it.
  call('DEL', key)
  call('SET', key, LINGER, 'PX', ms)
end

local function break_at_end(key)
  local value = call('GET', key)
  if value and value ~= LINGER and string.sub(value, 1, #BROKEN) ~= BROKEN then
    call('SET', key, BROKEN .. value, 'KEEPTTL')
  end
end

local function owners(key)
  local value = call('GET', key)
  if not value or value == LINGER then return {} end
  return {{string.sub(value, 1, 1024), 1}}
end

local function is_of(tag, value) return owner_in(value) == string.sub(tag, 2) end

local function last_fence(at) return fence_in(text_at(KEYS[at + 2])) end

local function load_record(fence_key, _, tag) return record_in(text_at(fence_key), tag) end

local function all_records(fence_key) return {record_in(text_at(fence_key))} end

local function save_fence(at, fence, record)
  call('SET', KEYS[at + 2], text_beside(fence, record), 'PX', FENCES_KEPT_MS)
end

-- Here there are no records of shared owners.
local function save_record() end

local function live_record() end

-- The plain layout, as far as the ordinary case needs it: the lock is a string that names its owner and request.

-- Keys of a name, and of a name in a batch.
local KEYS_PER_NAME, KEYS_PER_BATCHED = 5, 2
-- The lock alone tells which request holds it.
local LOCK_NAMES_REQUEST = true
-- Index of the last byte that is read of the string. A lock is shorter; another program's string may be of any size.
local VALUE_LAST = 511

local function write_lock(key, owner, request, _, ms) call('SET', key, owner .. '/' .. request, 'PX', ms) end

-- Whether there is neither a lock nor a waitlist.
local function is_free(lock, waitlist) return call('EXISTS', lock, waitlist) == 0 end

local function is_held_by(key, owner, request)
  return try_call('GETRANGE', key, 0, VALUE_LAST) == owner .. '/' .. request
end

-- Deletes the lock if this owner's request holds it, and returns whether it did.
local function remove_hold(key, owner, request) return is_held_by(key, owner, request) and call('DEL', key) == 1 end

-- In this layout the lock is a single value, so nothing remains of it; and a lock with waiters is not released the
-- ordinary way.
local function count_remaining() return 0 end

local function has_waiters(waitlist) return call('EXISTS', waitlist) ~= 0 end

-- In this layout there is no channel per lock: only the waitlist tells that a client waits.
local function publish_release() return 0 end

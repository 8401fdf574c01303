-- Redisson's layout, as far as the ordinary case needs it: the lock is a hash from owner to count.

-- Keys of a name, and of a name in a batch.
local KEYS_PER_NAME, KEYS_PER_BATCHED = 7, 3
-- The record, not the lock, tells which of an owner's requests holds it.
local LOCK_NAMES_REQUEST = false

local function write_lock(key, owner, request, count, ms)
  local is_new = call('HSET', key, owner, count) == 1
  local set = try_call('PEXPIRE', key, ms)
  if set ~= 1 and type(set) == 'table' then
    -- A user without the right to set an expiry must not leave a lock that never expires, nor delete one that existed
    -- before. The right to delete may be missing as well; SET, which has just written the fence, removes the key too.
    local left = try_call('PTTL', key)
    if left == -1 or is_new and type(left) ~= 'number' then call('SET', key, '', 'PXAT', 1) end
    error(set)
  end
end

-- Whether there is no lock, no waitlist and no token of Redisson's.
local function is_free(lock, waitlist, token) return call('EXISTS', lock, waitlist, token) == 0 end

-- A lock has one holder. A hash with more fields is another program's, or Redisson granted its write lock beside ours.
local function has_one_field(key) return try_call('HLEN', key) == 1 end

-- A private owner has one hold.
local function is_held_by(key, owner, request) return has_one_field(key) and try_call('HGET', key, owner) == '1' end

-- Removes the owner's field and returns whether it existed. The hash may remain: see `count_remaining`.
local function remove_hold(key, owner) return try_call('HDEL', key, owner) == 1 end

-- How many of these keys exist after a release: the lock if Redisson granted its write lock beside ours, and the
-- waitlist.
local function count_remaining(...) return call('EXISTS', ...) end

-- In this layout, `count_remaining` finds waiters after the release.
local function has_waiters() return false end

-- Redisson's waiters parse a number and read `-0` as their own 0; ours tell the two apart. Returns the number of
-- subscribers that received it, which is not zero while a client waits, because our clients subscribe as well.
local function publish_release(channel) return try_call('PUBLISH', channel, '-0') end

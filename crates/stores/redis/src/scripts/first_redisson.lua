-- What the ordinary case needs in the layout of Redisson, where the lock is a hash from owner to count.

-- Keys of a name, and of one that is asked for with others.
local PARTS, SHORT = 7, 3
-- Which of an owner's requests has it, the record tells.
local LOCK_NAMES_REQUEST = false

local function take(key, owner, request, count, ms)
  local is_new = call('HSET', key, owner, count) == 1
  local set = try_call('PEXPIRE', key, ms)
  if set ~= 1 and type(set) == 'table' then
    -- Whoever may not set an expiry must not leave a lock for ever, nor take away one that was there. It need not have the right to delete:
    -- what it wrote the fence with does that.
    local left = try_call('PTTL', key)
    if left == -1 or is_new and type(left) ~= 'number' then call('SET', key, '', 'PXAT', 1) end
    error(set)
  end
end

-- Whether there is neither a lock nor a line, nor a token of Redisson's.
local function is_all_free(lock, line, token) return call('EXISTS', lock, line, token) == 0 end

-- A lock has one holder. A hash with more fields is another program's, or Redisson granted its write lock beside ours.
local function has_one_field(key) return try_call('HLEN', key) == 1 end

-- An owner that is new for every asking has one hold.
local function is_held_by(key, owner, request) return has_one_field(key) and try_call('HGET', key, owner) == '1' end

-- Whether this owner, whose lock it is, had it and has it no more. Its lock may be there still: see `count_left`.
local function gives(key, owner) return try_call('HDEL', key, owner) == 1 end

-- How many of these are there, after their owners gave them back: a lock if Redisson granted its write lock beside ours, and a line.
local function count_left(...) return call('EXISTS', ...) end

-- That somebody waits is told after it was given back, by `count_left`.
local function is_waited_for() return false end

-- Redisson's waiters read a number, and take this one for its 0; ours know it from a 0 of Redisson's own. Says how many heard it: not
-- nobody while somebody waits, as ours listen there too.
local function announce(channel) return try_call('PUBLISH', channel, '-0') end

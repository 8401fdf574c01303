-- What the ordinary case needs in the plain layout, where the lock is a string that names its owner and request.

-- Keys of a name, and of one that is asked for with others.
local PARTS, SHORT = 5, 2
-- Whose hold a lock is can be told without its record.
local LOCK_NAMES_REQUEST = true
-- The place of the last byte that is read of a string: a lock is shorter, and a stranger's string has any size.
local VALUE_LAST = 511

local function take(key, owner, request, _, ms) call('SET', key, owner .. '/' .. request, 'PX', ms) end

-- Whether there is neither a lock nor a line.
local function is_all_free(lock, line) return call('EXISTS', lock, line) == 0 end

local function is_held_by(key, owner, request) return try_call('GETRANGE', key, 0, VALUE_LAST) == owner .. '/' .. request end

-- Whether it was held by this owner's request, and is no more.
local function gives(key, owner, request) return is_held_by(key, owner, request) and call('DEL', key) == 1 end

-- Here a lock is one value, and is gone with it; and it is not given back this way where somebody waits.
local function count_left() return 0 end

local function is_waited_for(line) return call('EXISTS', line) ~= 0 end

-- Here nobody listens: that somebody waits is told by the line alone.
local function announce() return 0 end

-- What the ordinary case needs in the plain layout, where the lock is a string that names its owner and request.

local PARTS = 5

local function take(key, owner, request, _, ms) redis.call('SET', key, owner .. '/' .. request, 'PX', ms) end

-- Whether there is neither a lock nor a line.
local function is_all_free() return redis.call('EXISTS', KEYS[1], KEYS[4]) == 0 end

local function is_held_by(key, owner, request) return redis.pcall('GET', key) == owner .. '/' .. request end

local function announce() end

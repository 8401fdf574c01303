-- Every script begins with this part: the order of its keys, its constants, and the clock.
--
-- Keys of one name, in this order: lock, fence, record, waitlist, expiries, and what the layout adds.
--   fence     the last fence that was granted, and the record of that grant: see lib/fence_text.lua.
--   record    the record of an owner that several clients share; it expires with the lock.
--   waitlist  waiting clients, by arrival time.
--   expiries  the same clients, by the time until which each is assumed to wait.
-- A record is {tag, first fence, fences, lease in ms, granted at, about, request}. For a shared owner, {…, holds,
-- released requests, cooldown until} stands in place of the request. A tag is the owner after `p` (private) or `s`
-- (shared). Times are microseconds since 1970 on the server's clock.

-- Looking up a global by name costs as much as a small command, so the functions in constant use are locals.
local call, try_call, find = redis.call, redis.pcall, string.find

-- Numbers that are only passed on are text: formatting one costs more than many commands.
local FENCES_KEPT_MS = '691200000'
-- A client that has not asked for this long no longer counts as waiting.
local WAITER_TTL = 3000000
local FENCE_EPOCH = 1577836800000000
-- Maximum number of released requests that a shared owner's record remembers.
local RELEASED_MAX = 64
-- The largest integer that a double counts exactly, and its number of digits.
local EXACT, DIGITS = 9007199254740992, 16
-- Fences count eighths of a microsecond. A name whose last fence may be lost starts JUMP ahead of the clock. A last
-- fence older than STALE counts as lost. The clock was set back if the client's estimate is more than COARSE ahead of
-- it. core/src/fence.rs has the same values.
local JUMP, STALE, COARSE, BLOCK_MAX = 32000, 80000000, 16000, 8000
-- 8 days: no clock produced a fence that is further ahead than this.
local AHEAD_MAX = 5529600000000
local BROKEN, COOLDOWN = 'leasehold:broken:', 'leasehold:linger'
-- Index of the last byte that is read at a fence's key when only the fence matters: another program may have stored a
-- string of any size.
local FENCE_LAST = 63
-- Families of values at a lock's key: a lock of leasehold or Redisson, Redisson's read-write lock, another program's
-- value.
local OURS, READ_WRITE, FOREIGN = 0, 1, 2

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function format_integer(number) return string.format('%.0f', number) end

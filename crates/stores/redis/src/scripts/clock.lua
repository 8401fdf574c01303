-- Every script begins with this: what its keys are, and the clock.
--
-- Keys of one name, in this order: lock, fence, record, line, heard, and what the layout adds.
--   fence   the last fence that was given out, and the record of that grant: see record.lua.
--   record  the record of an owner that several clients share; it ends with the lock.
-- A record says who holds it: {tag, first fence, fences, lease in ms, since, about, request}; of a shared owner {…, holds, given, lingers
-- until} instead of a request. A tag is `p` (private) or `s` (shared) and the owner.
--   line    waiting clients by the time they came. heard: the same by the time until which they are believed to wait.
-- Times are in microseconds since 1970, as the server counts them.

-- What a script calls all the time: to look it up by name each time costs as much as a small command.
local call, try_call, find = redis.call, redis.pcall, string.find

-- Numbers that are only passed on are text: to write one down costs more than many a command.
local FENCES_KEPT_MS = '691200000'
local BELIEVED = 3000000
local FENCE_EPOCH = 1577836800000000
local GIVEN_MAX = 64
-- The largest number that is counted exactly, and its digits.
local EXACT, DIGITS = 9007199254740992, 16
-- Fences are eighths of a microsecond. What a server may have forgotten begins a jump ahead of its clock; a last fence that is stale
-- counts as forgotten; a clock is set back when the client knows better by more than a coarse step. As in core/src/fence.rs.
local JUMP, STALE, COARSE, BLOCK_MAX = 32000, 80000000, 16000, 8000
-- A fence that is further ahead of the clock than 8 days was not counted by it.
local AHEAD_MAX = 5529600000000
local BROKEN, LINGER = 'leasehold:broken:', 'leasehold:linger'
-- The place of the last byte that is read of the text at a fence's key, where its fences are all that counts: any program may have put a
-- string of any size there.
local FENCE_LAST = 63
-- What can stand at a name: a lock of ours or Redisson's, its read-write lock, or another program's value.
local OURS, READ_WRITE, FOREIGN = 0, 1, 2

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function whole(number) return string.format('%.0f', number) end

-- Every script begins with this: the clock, the record beside a lock, and the line of clients that wait for it.
--
-- Keys of one name, in this order: lock, fence, record, line, heard, and what the layout adds.
--   record  who holds it: {tag, first fence, fences, lease in ms, since, about, request}; for an owner that several clients share
--           {…, holds, given, lingers until} instead of a request. A tag is `p` (private) or `s` (shared) and the owner.
--   line    waiting clients by the time they came. heard: the same by the time until which they are believed to wait.
-- Times are in microseconds since 1970, as the server counts them.

local FENCES_KEPT_MS = 691200000
local BELIEVED = 3000000
local FENCE_EPOCH = 1577836800000000
local GIVEN_MAX = 64
local BROKEN, LINGER = 'leasehold:broken:', 'leasehold:linger'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function whole(number) return string.format('%.0f', number) end
local function ms_until(moment) return math.ceil((moment - now) / 1000) end

local function load_record(key, tag)
  local packed = redis.call('GET', key)
  if not packed then return nil end
  local record = cmsgpack.unpack(packed)
  if tag and record[1] ~= tag then return nil end
  return record
end

local function save_record(key, record, ms) redis.call('SET', key, cmsgpack.pack(record), 'PX', ms) end

local function enlist(line, heard, client)
  redis.call('ZADD', line, 'NX', whole(now), client)
  redis.call('ZADD', heard, whole(now + BELIEVED), client)
  redis.call('PEXPIRE', line, BELIEVED / 1000)
  redis.call('PEXPIRE', heard, BELIEVED / 1000)
end

local function strike(line, heard, client)
  if redis.call('ZREM', line, client) == 1 then redis.call('ZREM', heard, client) end
end

-- Takes those off the line that have not asked for too long; says how many are left.
local function count_line(line, heard)
  for _, client in ipairs(redis.call('ZRANGEBYSCORE', heard, '-inf', whole(now))) do strike(line, heard, client) end
  return redis.call('ZCARD', line)
end

-- Tells the first in line that the lock may be free; where it does not listen, the next one.
local function hint(line, name)
  local at = 0
  repeat
    local client = redis.call('ZRANGE', line, at, at)[1]
    at = at + 1
  until not client or redis.call('PUBLISH', 'leasehold_hint:' .. client, name) > 0
end

-- A server that is out of memory refuses a script's first write where it needs memory, and no later one. What is held must be kept,
-- counted and given back there too: such steps begin with a write that needs none. For the hash of a lock that is held.
local function insist(lock) redis.call('HDEL', lock, '') end

-- Holds of a shared owner are kept as request, end, request, end, …; those that have ended are left out.
local function live_holds(record)
  local live = {}
  local holds = record[7]
  for at = 1, #holds, 2 do
    if holds[at + 1] > now then
      live[#live + 1] = holds[at]
      live[#live + 1] = holds[at + 1]
    end
  end
  return live
end

local function place_of(list, wanted, step)
  for at = 1, #list, step do
    if list[at] == wanted then return at end
  end
end

local function last_end(holds)
  local last = 0
  for at = 2, #holds, 2 do last = math.max(last, holds[at]) end
  return last
end

-- Holds under a shared owner's name that some other library took, and that only the count tells of.
local function foreign_holds(count, record) return math.max(0, count - #record[7] / 2) end

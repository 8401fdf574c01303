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
-- The largest number that is counted exactly.
local EXACT = 9007199254740992
local BROKEN, LINGER = 'leasehold:broken:', 'leasehold:linger'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function whole(number) return string.format('%.0f', number) end
local function ms_until(moment) return math.ceil((moment - now) / 1000) end

-- A record that somebody damaged is as good as none.
local function load_record(key, tag)
  local packed = redis.pcall('GET', key)
  if type(packed) ~= 'string' then return nil end
  local ok, record = pcall(cmsgpack.unpack, packed)
  if not ok or type(record) ~= 'table' or tag and record[1] ~= tag then return nil end
  return record
end

local function save_record(key, record, ms) redis.call('SET', key, cmsgpack.pack(record), 'PX', ms) end

-- Lists of who waits decide nothing, so a fault in them fails no call.
local function strike(line, heard, client)
  if redis.pcall('ZREM', line, client) == 1 then redis.pcall('ZREM', heard, client) end
end

local function enlist(line, heard, client)
  redis.pcall('ZADD', line, 'NX', whole(now), client)
  redis.pcall('ZADD', heard, whole(now + BELIEVED), client)
  redis.pcall('PEXPIRE', line, BELIEVED / 1000)
  redis.pcall('PEXPIRE', heard, BELIEVED / 1000)
end

-- Takes those off the line that have not asked for too long; says how many are left.
local function count_line(line, heard)
  for _, client in ipairs(redis.pcall('ZRANGEBYSCORE', heard, '-inf', whole(now))) do strike(line, heard, client) end
  local count = redis.pcall('ZCARD', line)
  return type(count) == 'number' and count or 0
end

-- Tells the first in line that the lock may be free; where it does not listen, the next one. What stands before a key's own word
-- stands before a channel's.
local function hint(line, name)
  local at, prefix = 0, string.match(line, '^(.-)leasehold_line:')
  repeat
    local client = redis.pcall('ZRANGE', line, at, at)[1]
    at = at + 1
  until not client or redis.pcall('PUBLISH', prefix .. 'leasehold_hint:' .. client, name) ~= 0
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

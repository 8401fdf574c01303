-- The line of clients that wait for a name.

-- Lists of who waits decide nothing, so a fault in them fails no call.
local function strike(line, heard, client)
  if try_call('ZREM', line, client) == 1 then try_call('ZREM', heard, client) end
end

local function is_client(text) return #text == 32 and not find(text, '%X') end

-- A list of ours has clients in it. Another program's is left alone, and done without: those who wait ask from time to time.
local function is_list(key)
  local first = try_call('ZRANGE', key, 0, 0)
  return not first.err and (not first[1] or is_client(first[1]))
end

local function enlist(line, heard, client)
  local first = try_call('ZRANGE', line, 0, 0)
  -- Where somebody is in line, both lists were looked at before.
  local is_ours = not first.err and (first[1] and is_client(first[1]) or not first[1] and is_list(heard))
  if not is_ours then return end
  if type(try_call('ZADD', line, 'NX', whole(now), client)) == 'number' then try_call('PEXPIRE', line, BELIEVED / 1000) end
  if type(try_call('ZADD', heard, whole(now + BELIEVED), client)) == 'number' then try_call('PEXPIRE', heard, BELIEVED / 1000) end
end

-- How many are taken off the line at once at most: another program's list has any size.
local STRIKES_MAX = 1000

-- Takes those off the line that have not asked for too long; says how many are left.
local function count_line(line, heard)
  for _, client in ipairs(try_call('ZRANGEBYSCORE', heard, '-inf', whole(now), 'LIMIT', 0, STRIKES_MAX)) do
    if is_client(client) then strike(line, heard, client) end
  end
  local count = try_call('ZCARD', line)
  return type(count) == 'number' and count or 0
end

-- Tells the first in line that the lock may be free; where it does not listen, the next one. What stands before a key's own word
-- stands before a channel's. Says whether the line is ours.
local function hint(line, name)
  local at, prefix = 0, string.match(line, '^(.-)leasehold_line:')
  repeat
    local client = try_call('ZRANGE', line, at, at)[1]
    at = at + 1
    if client and not is_client(client) then return false end
  until not client or try_call('PUBLISH', prefix .. 'leasehold_hint:' .. client, name) ~= 0
  return true
end

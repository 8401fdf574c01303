-- The clients that wait for a name. The waitlist is advisory: an error in it fails no call.

local function remove_waiter(waitlist, expiries, client)
  if try_call('ZREM', waitlist, client) == 1 then try_call('ZREM', expiries, client) end
end

local function is_client(text) return #text == 32 and not find(text, '%X') end

-- The members of a waitlist are client ids. Another program's sorted set is left alone; waiters then rely on polling.
local function is_waitlist(key)
  local first = try_call('ZRANGE', key, 0, 0)
  return not first.err and (not first[1] or is_client(first[1]))
end

local function add_waiter(waitlist, expiries, client)
  local first = try_call('ZRANGE', waitlist, 0, 0)
  -- If a client waits already, both keys were checked when it was added.
  local is_ours = not first.err and (first[1] and is_client(first[1]) or not first[1] and is_waitlist(expiries))
  if not is_ours then return end
  if type(try_call('ZADD', waitlist, 'NX', format_integer(now), client)) == 'number' then
    try_call('PEXPIRE', waitlist, WAITER_TTL / 1000)
  end
  if type(try_call('ZADD', expiries, format_integer(now + WAITER_TTL), client)) == 'number' then
    try_call('PEXPIRE', expiries, WAITER_TTL / 1000)
  end
end

-- Maximum number of expired waiters removed in one call: another program's sorted set may be of any size.
local PURGE_MAX = 1000

-- Removes waiters that have expired, and returns the number that is left.
local function count_waiters(waitlist, expiries)
  for _, client in ipairs(try_call('ZRANGEBYSCORE', expiries, '-inf', format_integer(now), 'LIMIT', 0, PURGE_MAX)) do
    if is_client(client) then remove_waiter(waitlist, expiries, client) end
  end
  local count = try_call('ZCARD', waitlist)
  return type(count) == 'number' and count or 0
end

-- Notifies the first waiter that the lock may be free. If that client is not subscribed, the next one is notified, and so on.
-- The channel has the prefix of the waitlist's key. Returns whether the waitlist is ours.
local function hint_first(waitlist, name)
  local at, prefix = 0, string.match(waitlist, '^(.-)leasehold_line:')
  repeat
    local client = try_call('ZRANGE', waitlist, at, at)[1]
    at = at + 1
    if client and not is_client(client) then return false end
  until not client or try_call('PUBLISH', prefix .. 'leasehold_hint:' .. client, name) ~= 0
  return true
end

-- Whether this server votes in a quorum. It does not while it may have forgotten grants that it made before it lost its
-- memory.
--
-- The epoch record: run id of the server, start of the epoch (nothing was forgotten since), quarantine in ms, every
-- write is synced (1 or 0). The record disappears when the server is emptied. After a restart it may return with older
-- data, and then names another run.

local EPOCH_KEPT_MS = FENCES_KEPT_MS

local function number_in(info, field) return tonumber(string.match(info, field .. ':(%d+)')) or 0 end

-- Whether this server, since its start, was neither emptied nor given other data, and evicted nothing.
local function is_untouched()
  if number_in(call('INFO', 'stats'), 'evicted_keys') > 0 then return false end
  local called = call('INFO', 'commandstats')
  for _, command in ipairs({
    'flushall', 'flushdb', 'swapdb', 'replicaof', 'slaveof', 'debug', 'failover', 'config|resetstat'
  }) do
    if string.find(called, 'cmdstat_' .. command .. '[:|]') then return false end
  end
  return true
end

-- Returns for how many ms the server does not vote, and the start of its epoch. If the server is used with another
-- quarantine, returns nil and that quarantine; nil and -1 if the value at the key is not an epoch record.
local function recovery_ms(key, quarantine, synced)
  local stored = try_call('GET', key)
  local run, start, stored_quarantine, was_synced
  if type(stored) == 'string' then
    run, start, stored_quarantine, was_synced = string.match(stored, '^(%x*) (%d+) (%d+) (%d)$')
  end
  if type(stored) == 'table' and not find(stored.err, 'WRONGTYPE', 1, true) then error(stored) end
  if stored and not run then return nil, -1 end
  if stored_quarantine and tonumber(stored_quarantine) ~= quarantine then return nil, tonumber(stored_quarantine) end
  if quarantine == 0 then
    if not run then call('SET', key, ' 0 0 0', 'PX', EPOCH_KEPT_MS) end
    return 0, 0
  end
  -- The append-only file may have been switched off since the client checked.
  if synced == '1' and number_in(call('INFO', 'persistence'), 'aof_enabled') == 0 then synced = '0' end
  local server = call('INFO', 'server')
  -- Searching for the known run id costs a tenth of parsing the current one.
  local current = run
  if not run or not string.find(server, 'run_id:' .. run .. '\r', 1, true) then
    current = string.match(server, 'run_id:(%x+)')
  end
  local since = tonumber(start)
  if run ~= current and not (run and was_synced == '1' and synced == '1') then
    since = now
    -- The server was never used, so it had nothing to forget. Its start is known to within a second.
    if not run and is_untouched() then
      since = now - math.max(0, number_in(server, 'uptime_in_seconds') - 1) * 1000000
    end
  end
  since = math.min(since, now)
  if run ~= current or was_synced ~= synced or tonumber(start) ~= since or call('PTTL', key) < EPOCH_KEPT_MS / 2 then
    call('SET', key, string.format('%s %s %d %s', current, format_integer(since), quarantine, synced),
      'PX', EPOCH_KEPT_MS)
  end
  return math.max(0, ms_until(since + quarantine * 1000)), since
end

-- Whether this server votes in a quorum: not while it may have forgotten what it granted before it lost its memory.
--
-- The record of its birth: run of the server, since when nothing was forgotten, quarantine in ms, whether every write is synced (1 or 0).
-- It goes when the server is emptied, and comes back with an older state after a restart: then it tells of another run.

local BIRTH_KEPT_MS = FENCES_KEPT_MS

local function number_in(info, word) return tonumber(string.match(info, word .. ':(%d+)')) or 0 end

-- Since its start this server was neither emptied, nor given another's memory, nor did it drop anything to make room.
local function is_untouched()
  if number_in(call('INFO', 'stats'), 'evicted_keys') > 0 then return false end
  local called = call('INFO', 'commandstats')
  for _, command in ipairs({'flushall', 'flushdb', 'swapdb', 'replicaof', 'slaveof', 'debug', 'failover', 'config|resetstat'}) do
    if string.find(called, 'cmdstat_' .. command .. '[:|]') then return false end
  end
  return true
end

-- For how many ms it does not vote, and since when it has forgotten nothing; or nothing and the quarantine that it is used with, where that
-- is another one; -1 where what stands there is no such record.
local function recovers_for(key, quarantine, synced)
  local kept = try_call('GET', key)
  local run, born, kept_quarantine, was_synced
  if type(kept) == 'string' then run, born, kept_quarantine, was_synced = string.match(kept, '^(%x*) (%d+) (%d+) (%d)$') end
  if type(kept) == 'table' and not find(kept.err, 'WRONGTYPE', 1, true) then error(kept) end
  if kept and not run then return nil, -1 end
  if kept_quarantine and tonumber(kept_quarantine) ~= quarantine then return nil, tonumber(kept_quarantine) end
  if quarantine == 0 then
    if not run then call('SET', key, ' 0 0 0', 'PX', BIRTH_KEPT_MS) end
    return 0, 0
  end
  -- A log that was switched off since a client asked is seen here.
  if synced == '1' and number_in(call('INFO', 'persistence'), 'aof_enabled') == 0 then synced = '0' end
  local server = call('INFO', 'server')
  -- To look for the run that is known costs a tenth of reading the run that is there.
  local here = run
  if not run or not string.find(server, 'run_id:' .. run .. '\r', 1, true) then here = string.match(server, 'run_id:(%x+)') end
  local since = tonumber(born)
  if run ~= here and not (run and was_synced == '1' and synced == '1') then
    since = now
    -- Never used: there was nothing to forget. Its start is known to within a second.
    if not run and is_untouched() then since = now - math.max(0, number_in(server, 'uptime_in_seconds') - 1) * 1000000 end
  end
  since = math.min(since, now)
  if run ~= here or was_synced ~= synced or tonumber(born) ~= since or call('PTTL', key) < BIRTH_KEPT_MS / 2 then
    call('SET', key, string.format('%s %s %d %s', here, whole(since), quarantine, synced), 'PX', BIRTH_KEPT_MS)
  end
  return math.max(0, ms_until(since + quarantine * 1000)), since
end

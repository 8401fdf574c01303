-- Writes to a key of Redis under a fence (fencing token): a stale holder, one that slept through its lease, is refused once a later
-- holder has been here. The check and the write are one step, because nothing runs between the lines of a script.
--
--   KEYS: the key to write, and a key for the newest holder (any key beside it; in a cluster, of the same slot)
--   ARGV: the fence and the owner of the lock, and the value
--   answers {1, fence} if it was written, {0, the fence that was here} if it was refused
--
--   redis-cli --eval docs/fences/redis.lua account:7 account:7:fence , "$LEASEHOLD_FENCE" "$LEASEHOLD_OWNER" 250
--
-- The owner is compared as well: a server that forgot its locks and had its clock set back may give one number to two holders, and only
-- the first one to write with it gets through.
-- The key of the newest holder has no expiry on purpose: it has to outlive every stale holder. Delete it with what it protects, no sooner.
-- Change the line that writes to whatever your write is. Fences stay below 2^53 until 2055, so Lua's numbers hold them exactly; they are
-- written with a format, because a number that is joined to a text loses its last digits.
local fence, owner = tonumber(string.match(tostring(ARGV[1]), '^%d+$')), ARGV[2]
if not fence or fence < 1 or fence >= 2 ^ 53 then return redis.error_reply('ERR not a fence: ' .. tostring(ARGV[1])) end
if not ARGV[3] or owner == '' then return redis.error_reply('ERR give the fence, the owner and the value') end
local newest, holder = string.match(redis.call('GET', KEYS[2]) or '0', '^(%d+) ?(.*)$')
if not newest then return redis.error_reply('ERR the key for the newest holder holds something else') end
newest = tonumber(newest)
local is_other = fence == newest and holder ~= '' and holder ~= owner
if fence < newest or is_other then return {0, string.format('%.0f', newest)} end
redis.call('SET', KEYS[2], string.format('%.0f ', fence) .. owner)
redis.call('SET', KEYS[1], ARGV[3])
return {1, string.format('%.0f', fence)}

-- Writes to a key of Redis under a fence: whoever slept through its lease, and comes back after a later holder has been here, is refused.
-- The check and the write are one step, because nothing runs between the lines of a script.
--
--   KEYS: what is written, and the largest fence that was here (any key beside it; in a cluster, of the same slot)
--   ARGV: the fence of the lock, and the value
--   answers {1, fence} where it was written, {0, the larger fence that was here} where it was not
--
--   redis-cli --eval docs/fences/redis.lua account:7 account:7:fence , "$LEASEHOLD_FENCE" 250
--
-- The key of the fence has no expiry on purpose: it has to outlive whoever is late. It goes when what it protects goes, no sooner.
-- Change the line that writes to whatever your write is. Fences stay below 2^53 until 2055, so numbers of Lua hold them exactly;
-- they are written with a format, because a number that is joined to a text loses its last digits.
local fence = tonumber(ARGV[1])
if not fence or fence < 1 or fence >= 2 ^ 53 then return redis.error_reply('ERR not a fence: ' .. ARGV[1]) end
local largest = tonumber(redis.call('GET', KEYS[2]) or 0)
if not largest then return redis.error_reply('ERR what stands at the key of the fence is none') end
if fence < largest then return {0, string.format('%.0f', largest)} end
redis.call('SET', KEYS[2], string.format('%.0f', fence))
redis.call('SET', KEYS[1], ARGV[2])
return {1, string.format('%.0f', fence)}

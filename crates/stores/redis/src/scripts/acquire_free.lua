-- The ordinary case, before anything else is made ready: one name that is free, nobody in line, and an owner that is new for every
-- asking. What is not ordinary is left to the rest of the script, and nothing was written by then.
if #KEYS == PARTS and string.byte(ARGV[1]) == 112 and is_all_free() then
  if now > tonumber(ARGV[6]) then return {'late', now} end
  local tag, request, lease, block = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
  local last = redis.pcall('GET', KEYS[2])
  local first = math.max((tonumber(last or nil) or 0) + 1, ARGV[5] + 1, (now - FENCE_EPOCH) * 8)
  if type(last) ~= 'table' and first + block < EXACT then
    -- First of all: a server that is out of memory refuses this one, and nothing was written.
    redis.call('SET', KEYS[2], string.format('%.0f', first + block - 1), 'PX', FENCES_KEPT_MS)
    take(KEYS[1], string.sub(tag, 2), request, 1, lease)
    save_record(KEYS[3], {tag, first, block, lease, now, ARGV[9], request}, lease)
    return {'granted', now, {first, block, 1, lease}}
  end
end

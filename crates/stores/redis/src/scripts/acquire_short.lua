if #KEYS == PARTS and ARGV[1] == 'p' .. ARGV[2] and proposes(ARGV[3], ARGV[4], ARGV[5], ARGV[6]) then
  local lock, fence, owner, lease = KEYS[1], KEYS[2], ARGV[2], ARGV[3]
  local is_free = is_all_free(lock, KEYS[4], KEYS[6])
  if is_free and acquire_free(lock, fence, call('MGET', fence)[1], owner, lease, ARGV[9]) then
    return {'granted', now, {first, tonumber(ARGV[4]), 1, tonumber(lease)}}
  end
end

if #KEYS == PARTS and ARGV[1] == 'p' .. ARGV[2] then
  local block, lease = tonumber(ARGV[4]), ARGV[3]
  local first, grant = proposal(lease, block, ARGV[5], ARGV[6])
  if first and acquire_free(KEYS[1], KEYS[2], KEYS[4], KEYS[6], ARGV[2], first, grant, lease, ARGV[9]) then
    return {'granted', now, {first, block, 1, tonumber(lease)}}
  end
end

local is_set_back = ARGV[10] - (now - FENCE_EPOCH) * 8 > COARSE
if #KEYS == PARTS and ARGV[1] == 'p' .. ARGV[2] and not is_set_back and proposes(ARGV[3], ARGV[4], ARGV[5], ARGV[6]) then
  local lock, fence, owner, lease = KEYS[1], KEYS[2], ARGV[2], ARGV[3]
  if is_all_free(lock, KEYS[4], KEYS[6]) then
    local before = try_call('GETRANGE', fence, 0, FENCE_LAST)
    if type(before) == 'string' then
      local is_granted, is_jump = acquire_free(lock, fence, before ~= '' and before, owner, lease, ARGV[9])
      if is_jump then return {'granted', now, {first + JUMP, 1, 1, tonumber(lease)}} end
      if is_granted then return {'granted', now, {first, tonumber(ARGV[4]), 1, tonumber(lease)}} end
    end
  end
end

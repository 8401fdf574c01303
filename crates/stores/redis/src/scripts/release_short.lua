-- In a quorum every attempt is a request of its own, for the same owner.
local of_request = ARGV[2] == 'p' .. ARGV[3] or LOCK_NAMES_REQUEST and ARGV[5] == '' and string.sub(ARGV[2], 1, 1) == 'p'
local whole_hold = of_request and ARGV[4] == 'hold' and ARGV[6] == ''
local is_given
if whole_hold and ARGV[7] == '0' and ARGV[10] ~= '1' and not is_waited_for(KEYS[4]) then
  local beside = ARGV[5] ~= '' and try_call('GETRANGE', KEYS[2], 0, FENCE_LAST)
  local listeners = release_alone(KEYS[1], beside, string.sub(ARGV[2], 2), ARGV[3], ARGV[5], KEYS[7])
  local left = listeners and count_left(KEYS[1], KEYS[4])
  if left == 0 and listeners == 0 and ARGV[9] ~= '1' then return {'released', now, 0} end
  is_given = left == 0 or left and count_left(KEYS[1]) == 0
end

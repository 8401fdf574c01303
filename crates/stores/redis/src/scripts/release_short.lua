local whole_hold = ARGV[2] == 'p' .. ARGV[3] and ARGV[4] == 'hold' and ARGV[6] == ''
if whole_hold and ARGV[7] == '0' and ARGV[9] ~= '1' and ARGV[10] ~= '1' and call('EXISTS', KEYS[4]) == 0 then
  if release_alone(KEYS[1], ARGV[3], KEYS[7]) then return {'released', now, 0} end
end

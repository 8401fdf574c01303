-- The ordinary case, before anything else is made ready: a whole hold of an owner that is new for every asking, nobody in line, and no
-- fence left over. What is not ordinary is left to the rest of the script, and nothing was written by then.
if string.byte(ARGV[2]) == 112 and ARGV[4] == 'hold' and ARGV[7] == '0' and ARGV[9] ~= '1' and ARGV[10] ~= '1' then
  local tag, request, fence, used = ARGV[2], ARGV[3], ARGV[5], tonumber(ARGV[6])
  if is_held_by(KEYS[1], string.sub(tag, 2), request) and redis.call('EXISTS', KEYS[4]) == 0 then
    local record = load_record(KEYS[3], tag)
    if record and record[7] == request and (fence == '' or tonumber(fence) == record[2]) then
      if not used or used >= record[2] + record[3] - 1 then
        redis.call('DEL', KEYS[1], KEYS[3])
        announce(0)
        return {'released', now, 0}
      end
    end
  end
end

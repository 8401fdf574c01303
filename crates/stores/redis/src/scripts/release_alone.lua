-- The ordinary release: a whole hold of an owner that is new for every asking, nobody in line, and no fence left over. Where something is
-- not ordinary, nothing was written.
local function release_alone(lock, line, owner, channel)
  if redis.call('EXISTS', line) ~= 0 or not gives(lock, owner, owner) then return false end
  announce(channel)
  return true
end

-- The ordinary release: a whole hold of an owner that is new for every asking, nobody in line, and no fence left over. Where something is
-- not ordinary, nothing was written, and the answer is false; else it is how many heard of it.
local function release_alone(lock, owner, request, channel)
  if not gives(lock, owner, request) then return false end
  return announce(channel)
end

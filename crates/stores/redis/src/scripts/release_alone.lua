-- Whether what stands beside a lock is the record of a grant with this first fence: see record.lua. Where it seems not to be, it is looked at
-- the long way.
local function is_granted_with(beside, fence)
  return beside and (find(beside, '^' .. fence .. ' [01] ') == 1 or find(beside, '^%+%d+ ' .. fence .. ' ') == 1)
end

-- The ordinary release: a whole hold of an owner that is new for every asking, nobody in line, and no fence left over. Where something is
-- not ordinary, nothing was written, and the answer is false; else it is how many heard of it. An older grant of the same request is
-- another one: so where a fence is named it must be that of the record.
local function release_alone(lock, beside, owner, request, fence, channel)
  if fence ~= '' and not is_granted_with(beside, fence) then return false end
  if not gives(lock, owner, request) then return false end
  return announce(channel)
end

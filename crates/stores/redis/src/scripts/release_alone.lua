-- Whether what stands beside a lock is the record of a grant with this first fence: see record.lua. Where it seems not to be, it is looked at
-- the long way.
local function is_granted_with(beside, fence)
  if type(beside) ~= 'string' then return false end
  -- Of one fence, which is the last one as well. To make numbers of it would cost as much as a command.
  if find(beside, fence, 1, true) == 1 then
    local space, fences, next_space = string.byte(beside, #fence + 1, #fence + 3)
    if space == 32 and (fences == 48 or fences == 49) and next_space == 32 then return true end
  end
  local last, fences = string.match(beside, '^(%d+) (%d+) ')
  if last then return fences ~= '0' and last - fences + 1 == tonumber(fence) end
  return find(beside, '^%+%d+ ' .. fence .. ' ') == 1
end

-- The ordinary release: a whole hold of an owner that is new for every asking, nobody in line, and no fence left over. Where something is
-- not ordinary, nothing was written, and the answer is false; else it is how many heard of it. An older grant of the same request is
-- another one: so where a fence is named it must be that of the record, which also tells that the lock is no other program's.
local function release_alone(lock, beside, owner, request, fence, channel)
  local is_ours
  if fence == '' then is_ours = is_held_by(lock, owner, request) else is_ours = is_granted_with(beside, fence) end
  if not is_ours then return false end
  if not gives(lock, owner, request) then return false end
  return announce(channel)
end

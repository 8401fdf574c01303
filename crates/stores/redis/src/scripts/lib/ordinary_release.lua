-- The ordinary release: the whole hold of an owner that is unique to its request, no client waits, and no fence is
-- returned.

-- Whether the text at a fence's key records a grant with this first fence: see lib/fence_text.lua. If in doubt, the
-- long path decides.
local function is_granted_with(text, fence)
  if type(text) ~= 'string' then return false end
  -- A grant of one fence, where the first fence is also the last. Converting it to a number would cost as much as a
  -- command.
  if find(text, fence, 1, true) == 1 then
    local space, fences, next_space = string.byte(text, #fence + 1, #fence + 3)
    if space == 32 and (fences == 48 or fences == 49) and next_space == 32 then return true end
  end
  local last, fences = string.match(text, '^(%d+) (%d+) ')
  if last then return fences ~= '0' and last - fences + 1 == tonumber(fence) end
  return find(text, '^%+%d+ ' .. fence .. ' ') == 1
end

-- Returns the number of subscribers that received the message, or false if the release is not ordinary; then nothing
-- was written. A request may have had an earlier grant, so a fence that is named must match the record. That match also
-- shows that the lock is leasehold's.
local function release_ordinary(lock, text, owner, request, fence, channel)
  local is_ours
  if fence == '' then is_ours = is_held_by(lock, owner, request) else is_ours = is_granted_with(text, fence) end
  if not is_ours then return false end
  if not remove_hold(lock, owner, request) then return false end
  return publish_release(channel)
end

-- The plain layout: reads what is at a lock's key, for `inspect`, refusals and `break`.

-- Returns the family of the value at an existing key, and its holder as {value, count}. Another program's string is
-- shown up to VALUE_LAST.
local function read_holders(lock)
  local value = call('GETRANGE', lock, 0, VALUE_LAST)
  if value == COOLDOWN then return OURS, {} end
  local is_ours = owner_in(value) or string.sub(value, 1, #BROKEN) == BROKEN
  return is_ours and OURS or FOREIGN, {{value, 1}}
end

-- Marks the holder as broken, and leaves the lock to its lease.
local function break_at_end(key, holders)
  for _, stored in ipairs(holders) do
    if string.sub(stored[1], 1, #BROKEN) ~= BROKEN then call('SET', key, BROKEN .. stored[1], 'KEEPTTL') end
  end
end

-- Other libraries compare the whole string before they renew a lock, so a changed string ends their right.
local CAN_END_FOREIGN = true

local function is_tag_of(tag, value) return owner_in(value) == string.sub(tag, 2) end

-- Lets the fences of the name start again from the clock.
local function reset_fences() call('DEL', KEYS[2]) end

local function load_all_records(fence_key) return {parse_record(read_text(fence_key))} end

-- This layout has no shared owners, and so no records of them.
local function discard_record() end

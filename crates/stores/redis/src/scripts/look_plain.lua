-- What stands at a lock's key in the plain layout, for people and for a break.

-- Whether a string that is there is a lock of ours, and its holder as {value, count}. Of another program's string the beginning is shown.
local function look(lock)
  local value = call('GETRANGE', lock, 0, VALUE_LAST)
  if value == LINGER then return OURS, {} end
  local is_ours = owner_in(value) or string.sub(value, 1, #BROKEN) == BROKEN
  return is_ours and OURS or FOREIGN, {{value, 1}}
end

local function break_at_end(key, holders)
  for _, kept in ipairs(holders) do
    if string.sub(kept[1], 1, #BROKEN) ~= BROKEN then call('SET', key, BROKEN .. kept[1], 'KEEPTTL') end
  end
end

-- Other libraries compare the whole string before they renew a lock.
local ENDS_STRANGERS = true

local function is_of(tag, value) return owner_in(value) == string.sub(tag, 2) end

-- The fences of the name begin again from the clock.
local function reset_fences() call('DEL', KEYS[2]) end

local function all_records(fence_key) return {record_in(text_at(fence_key))} end

-- Here there are no records of shared owners.
local function discard_record() end

-- Describes a lock and its holders, for `inspect` and for a refusal: {left in ms, family, holder, holder, …}. Each
-- holder is {owner as stored, holds, left in ms, broken}; if a record names it, {…, tag, fence, lease in ms, granted
-- at, about}. Left is -1 if there is no expiry. During a cooldown, the last holder is described with zero holds.
-- Another program's value has one holder, which describes the value.
local function add_record(holder, record)
  for _, part in ipairs({record[1], record[2], record[4], record[5], record[6]}) do holder[#holder + 1] = part end
  return holder
end

-- Returns the description, and the holders as they are stored.
local function describe_lock(lock, fence_key, record_key)
  local left = call('PTTL', lock)
  if left == -2 then return {left, OURS}, {} end
  local family, holders = read_holders(lock, fence_key, record_key)
  local found = {left, family}
  local records = family ~= FOREIGN and load_all_records(fence_key, record_key) or {}
  for _, stored in ipairs(holders) do
    local owner, count, broken = stored[1], stored[2], 0
    if string.sub(owner, 1, #BROKEN) == BROKEN then owner, broken = string.sub(owner, #BROKEN + 1), 1 end
    local holder = {owner, count, left, broken}
    for _, record in ipairs(records) do
      if #holder == 4 and is_tag_of(record[1], owner) then
        add_record(holder, record)
        if is_shared(record[1]) then
          local live = live_holds(record)
          local foreign = foreign_holds(count, record)
          holder[2] = #live / 2 + foreign
          if foreign == 0 then holder[3] = ms_until(latest_end(live)) end
        end
      end
    end
    if holder[2] > 0 then found[#found + 1] = holder end
  end
  local newest = records[1]
  if #found == 2 and newest then found[3] = add_record({string.sub(newest[1], 2), 0, 0, 0}, newest) end
  return found, holders
end

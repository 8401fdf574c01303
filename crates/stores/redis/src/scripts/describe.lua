-- Who holds a lock, for people and for a refusal: {left in ms, family, holder, holder, …}, each holder {owner as kept, holds, left in ms,
-- broken, and where the record is of it: tag, fence, lease in ms, since, about}. Left is -1 where there is no expiry. Of a lock that
-- lingers, the last holder is told, with no holds. Of another program's value there is one holder, which describes the value.
local function recorded(holder, record)
  for _, part in ipairs({record[1], record[2], record[4], record[5], record[6]}) do holder[#holder + 1] = part end
  return holder
end

-- Answers the holders as they are kept as well.
local function describe(lock, fence_key, record_key)
  local left = call('PTTL', lock)
  if left == -2 then return {left, OURS}, {} end
  local family, holders = look(lock, fence_key, record_key)
  local found = {left, family}
  local records = family ~= FOREIGN and all_records(fence_key, record_key) or {}
  for _, kept in ipairs(holders) do
    local owner, count, broken = kept[1], kept[2], 0
    if string.sub(owner, 1, #BROKEN) == BROKEN then owner, broken = string.sub(owner, #BROKEN + 1), 1 end
    local holder = {owner, count, left, broken}
    for _, record in ipairs(records) do
      if #holder == 4 and is_of(record[1], owner) then
        recorded(holder, record)
        if is_shared(record[1]) then
          local live = live_holds(record)
          local foreign = foreign_holds(count, record)
          holder[2] = #live / 2 + foreign
          if foreign == 0 then holder[3] = ms_until(last_end(live)) end
        end
      end
    end
    if holder[2] > 0 then found[#found + 1] = holder end
  end
  local newest = records[1]
  if #found == 2 and newest then found[3] = recorded({string.sub(newest[1], 2), 0, 0, 0}, newest) end
  return found, holders
end

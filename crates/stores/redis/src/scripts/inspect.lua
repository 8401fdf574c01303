-- Describes locks. KEYS: lock, fence, record and expiries of each. Returns the clock, and for each {waiting clients,
-- holders}.
-- ARGV: `one`, a value of another type is an error; `all`, such a value and a free name are answered with 0; or
-- `locks`, another program's value is answered with 0 as well.

--@include lib/prelude.lua
--@include lib/fence_text.lua
--@include lib/{layout}/lock.lua
--@include lib/waitlist.lua
--@include lib/records.lua
--@include lib/{layout}/ownership.lua
--@include lib/{layout}/inspection.lua
--@include lib/holders.lua

local answer = {now}
for at = 1, #KEYS, 4 do
  local ok, found = pcall(describe_lock, KEYS[at], KEYS[at + 1], KEYS[at + 2])
  if not ok then
    if ARGV[1] == 'one' then error(found) end
    expect_wrong_type(found)
    found = {-2}
  end
  if ARGV[1] ~= 'one' and (found[1] == -2 or found[2] == FOREIGN and ARGV[1] == 'locks') then
    answer[#answer + 1] = 0
  else
    local waiting = try_call('ZCOUNT', KEYS[at + 3], '(' .. format_integer(now), '+inf')
    answer[#answer + 1] = {type(waiting) == 'number' and waiting or 0, found}
  end
end
return answer

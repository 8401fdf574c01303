-- What stands beside a lock, and in the next lines who asked. After an ordinary grant, whose first fence is the clock's and tells since when:
-- `<last fence> <fences> <lease in ms> <request> p`, and with zero fences if its one fence was a jump ahead of the clock. It is short because a server goes over each letter of a text that a script reads or
-- makes. After any other `+<last fence> <first fence> <fences> <lease in ms> <since> <request> <tag>`, or `+<last fence>` alone where an owner
-- is shared. An owner that is new for every asking is never taken for another: so what is left of its record harms nobody.
local function fence_in(text) return tonumber(string.match((text or '') .. ' ', '^%+?(%d+) ')) or 0 end

-- The last fence on record, from the text at its key: 0 where there is none, and beyond every other where what stands there is no fence.
local function last_in(text, key)
  if not text or text == '' then return call('EXISTS', key) == 0 and 0 or math.huge end
  -- A server of a quorum has none yet where it took a lock without its fences.
  local last = find(text, '^%+0 %d') and -1 or fence_in(text)
  if last == 0 then return math.huge end
  return math.max(last, 0)
end

-- The same where a stranger's text may stand, of any size.
local function fence_at(key)
  local text = try_call('GETRANGE', key, 0, 31)
  if type(text) == 'string' then return last_in(text, key) end
  if not find(text.err, 'WRONGTYPE', 1, true) then error(text) end
  return math.huge
end

-- Whether fences may go on from here: nobody counted so far, or could count on.
local function is_unfit(last, clock) return not (last < math.min(clock + AHEAD_MAX, EXACT)) end

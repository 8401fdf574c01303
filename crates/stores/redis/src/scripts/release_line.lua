-- What follows a release: the line of those who wait.

local name, client, line, heard = ARGV[1], ARGV[8], KEYS[4], KEYS[5]

-- Takes the client off the line, where it need not be, and says how many are left there.
local function leave_line()
  strike(line, heard, client)
  return count_line(line, heard)
end

-- Tells the next one, and puts the client at the end of the line where it asks for that. Says how many wait.
local function tell_next(waiting)
  if not hint(line, name) then waiting = 0 end
  if ARGV[9] == '1' then enlist(line, heard, client) end
  return {'released', now, waiting}
end

-- The ordinary release has given it back already.
if is_given then return tell_next(leave_line()) end

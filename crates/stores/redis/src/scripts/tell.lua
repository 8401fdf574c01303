-- Tells the first in line of locks that were given back. KEYS: lock, line and heard of each. ARGV: their names.
-- Answers how many clients wait for each.
local answer = {}
for at = 1, #ARGV do
  local lock, line, heard = KEYS[at * 3 - 2], KEYS[at * 3 - 1], KEYS[at * 3]
  answer[at] = count_line(line, heard)
  if answer[at] > 0 and try_call('EXISTS', lock) == 0 and not hint(line, ARGV[at]) then answer[at] = 0 end
end
return answer

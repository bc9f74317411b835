-- Tells what is free in a part, and what it has given to the others and got from them.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- Replies {1, epoch, shards, free units, changes, given to part 0, got from part 0,
--   given to part 1, ...}.

local why = shut()
if why then return why end
local moves = {}
for part = 0, tonumber(head.shards) - 1 do
  moves[#moves + 1] = '>' .. part
  moves[#moves + 1] = '<' .. part
end
local answer = reply(1, text(free()), head.changes)
for _, units in ipairs(redis.call('hmget', KEYS[1], unpack(moves))) do answer[#answer + 1] = units or '0' end
return answer

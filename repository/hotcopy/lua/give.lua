-- Gives free units to another part, which takes them over later.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] the other part
-- ARGV[4] at most how many units
-- Replies {1, epoch, shards, units} with all that it has given to that part.

local why = shut()
if why then return why end
local units = math.min(free(), tonumber(ARGV[4]))
local given = tonumber(redis.call('hget', KEYS[1], '>' .. ARGV[3]) or '0')
if units <= 0 then return reply(1, text(given)) end
write('hset', KEYS[1], 'given', text(tonumber(head.given or '0') + units), 'changes', text(tonumber(head.changes) + 1),
  '>' .. ARGV[3], text(given + units))
return reply(1, text(given + units))

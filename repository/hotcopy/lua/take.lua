-- Takes over the units that another part has given to this one.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] the other part
-- ARGV[4] all that it has given to this one
-- Replies {1, epoch, shards}.

local why = shut()
if why then return why end
local units = tonumber(ARGV[4]) - tonumber(redis.call('hget', KEYS[1], '<' .. ARGV[3]) or '0')
if units <= 0 then return reply(1) end
write('hset', KEYS[1], '<' .. ARGV[3], ARGV[4], 'got', text(tonumber(head.got or '0') + units),
  'changes', text(tonumber(head.changes) + 1))
return reply(1)

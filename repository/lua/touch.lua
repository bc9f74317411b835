-- Notes that pending entries were published again, in which epoch.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3...] for each order: its id and its pending entry as it is to be
-- Replies {1, epoch}. Orders that are pending no more are left alone.

local why = shut()
if why then return why end
local ms = text(math.floor(clock() / 1000))
for i = 3, #ARGV, 2 do
  if redis.call('hexists', KEYS[3], ARGV[i]) == 1 then
    redis.call('hset', KEYS[3], ARGV[i], ARGV[i + 1])
    redis.call('zadd', KEYS[4], ms, ARGV[i])
  end
end
return reply(1)

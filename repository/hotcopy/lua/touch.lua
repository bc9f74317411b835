-- Notes that pending entries were published again.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3...] order ids
-- Replies {1, epoch, shards}. Orders that are pending no more are left alone, and so are
--   the entries: a rebuild may have given them another epoch meanwhile.

local why = shut()
if why then return why end
local ms = text(math.floor(clock() / 1000))
for i = 3, #ARGV do redis.call('zadd', KEYS[4], 'XX', ms, ARGV[i]) end
return reply(1)

-- Gives back the unit of a closed order: the exact inverse of its admission. It
-- acts only while the user's mark is that order, and leaves a tombstone, so that
-- it may be repeated and an admission that arrives after it is refused.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] order id
-- ARGV[4] user
-- ARGV[5] how long tombstones last, ms
-- ARGV[6] the channel on which those who wait for the order listen
-- Replies {1, epoch} also when there was nothing left to do.

local why = shut()
if why and why[1] == -1 then return why end
redis.call('publish', ARGV[6], ARGV[3])
if why then return why end

-- A Redis that is out of memory refuses only a script's first write, and only
-- if it may take memory: this one does not.
local held = redis.call('zrem', KEYS[4], ARGV[3]) + redis.call('hdel', KEYS[3], ARGV[3])
if redis.call('hget', KEYS[2], ARGV[4]) == ARGV[3] then
  held = held + redis.call('hdel', KEYS[2], ARGV[4])
end
if held > 0 then redis.call('hincrby', KEYS[1], 'changes', 1) end
local ms = math.floor(clock() / 1000)
redis.call('zremrangebyscore', KEYS[5], '-inf', '(' .. text(ms - tonumber(ARGV[5])))
redis.call('zadd', KEYS[5], 'NX', text(ms), ARGV[3])
return reply(1)

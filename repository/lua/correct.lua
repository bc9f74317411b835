-- Corrects a mark that the copy had lost: the user's order failed because an
-- earlier one is live, so the mark becomes that one, and the entry goes.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] the order that failed
-- ARGV[4] user
-- ARGV[5] the order that is live
-- ARGV[6] the channel on which those who wait for the order listen
-- Replies {1, epoch} also when there was nothing left to do.

local why = shut()
if why and why[1] == -1 then return why end
redis.call('publish', ARGV[6], ARGV[3])
if why then return why end

redis.call('zrem', KEYS[4], ARGV[3])
redis.call('hdel', KEYS[3], ARGV[3])
local mark = redis.call('hget', KEYS[2], ARGV[4])
-- The failed order's release may have come first and taken its mark away; the
-- live one may have been closed meanwhile, and must not come back.
local released = not mark and redis.call('zscore', KEYS[5], ARGV[3])
if mark == ARGV[3] or released then
  if not redis.call('zscore', KEYS[5], ARGV[5]) then
    redis.call('hset', KEYS[2], ARGV[4], ARGV[5])
  elseif mark then
    redis.call('hdel', KEYS[2], ARGV[4])
  end
  redis.call('hincrby', KEYS[1], 'changes', 1)
end
redis.call('zadd', KEYS[5], 'NX', text(math.floor(clock() / 1000)), ARGV[3])
return reply(1)

-- Loads a part of a closed copy.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] how long the keys of a load that is given up are kept, ms
-- ARGV[4] number of marks
-- ARGV[5...] for each mark: user, order id; then for each pending entry: order
--   id, entry, ms since 1970 from which it is due
-- Replies {1, epoch}; {0, epoch} the copy has another epoch, another server, or
--   was opened already.

if head.epoch ~= ARGV[1] or head.opened == ARGV[1] or head.run_id ~= server() then return reply(0) end
redis.call('hset', KEYS[2], '', '1')
redis.call('hset', KEYS[3], '', '1')
redis.call('zadd', KEYS[4], '+inf', '')
redis.call('zadd', KEYS[5], '+inf', '')
local entries = 5 + 2 * tonumber(ARGV[4])
if entries > 5 then redis.call('hset', KEYS[2], unpack(ARGV, 5, entries - 1)) end
for i = entries, #ARGV, 3 do
  redis.call('hset', KEYS[3], ARGV[i], ARGV[i + 1])
  redis.call('zadd', KEYS[4], ARGV[i + 2], ARGV[i])
end
for i = 2, 5 do redis.call('pexpire', KEYS[i], ARGV[3]) end
return reply(1)

-- Frees the lock whoever holds it. The latch keeps the answer for a repetition.
--
-- KEYS[1] the lock
-- KEYS[2] the channel
-- KEYS[3] the latch of this request
-- ARGV[1] how long the latch lasts, ms
-- ARGV[2] 1: messages are sharded (Cluster)
-- Replies 1 it was held; 0 it was not.

if redis.call('del', KEYS[1]) == 0 then
  return redis.call('exists', KEYS[3])
end
redis.call(ARGV[2] == '1' and 'spublish' or 'publish', KEYS[2], '0')
redis.pcall('set', KEYS[3], '1', 'PX', ARGV[1])
return 1

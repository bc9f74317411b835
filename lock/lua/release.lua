-- Sets the hold count of a holder; at zero it frees the lock and says so. The
-- latch keeps the answer, so that a repetition after a lost reply gets the same
-- one, and an acquisition that arrives after its end is refused.
--
-- KEYS[1] the lock: hash {holder: hold count}
-- KEYS[2] the channel
-- KEYS[3] the latch of this holder
-- ARGV[1] holder
-- ARGV[2] hold count afterwards
-- ARGV[3] how long the latch lasts, ms
-- ARGV[4] the publishing command: publish, or spublish in a Cluster
-- ARGV[5] 1: the acquisition's outcome is unknown; latch also when not there
-- Replies 1 freed; 0 held with fewer holds; -1 the holder is not there.

if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  local answer = redis.call('get', KEYS[3])
  if answer then return tonumber(answer) end
  if ARGV[5] == '1' then
    redis.pcall('set', KEYS[3], '-1', 'PX', ARGV[3])
  end
  return -1
end
if ARGV[2] ~= '0' then
  redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], '0')
-- pcall: a Redis out of memory refuses the latch, and must still free the lock.
redis.pcall('set', KEYS[3], '1', 'PX', ARGV[3])
return 1

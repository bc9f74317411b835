-- Sets the hold counts of holders; at zero it frees the lock and says so. The
-- latch keeps the answer, so that a repetition after a lost reply gets the same
-- one, and an acquisition that arrives after its end is refused.
--
-- KEYS of each lock:
--   the lock: hash {holder: hold count}
--   the channel
--   the latch of the holder
-- ARGV[1] hold count afterwards
-- ARGV[2] how long a latch lasts, ms
-- ARGV[3] 1: messages are sharded (Cluster)
-- ARGV[4] 1: the acquisitions' outcome is unknown; latch also when not there
-- ARGV[5] and following: the holders
-- Replies for each lock: 1 freed; 0 held with fewer holds; -1 the holder is not there.

local publish = ARGV[3] == '1' and 'spublish' or 'publish'
local out = {}
for i = 1, #KEYS / 3 do
  local lock, channel, latch, holder = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[4 + i]
  if redis.call('hexists', lock, holder) == 0 then
    local answer = redis.call('get', latch)
    if not answer and ARGV[4] == '1' then
      redis.pcall('set', latch, '-1', 'PX', ARGV[2])
    end
    out[i] = tonumber(answer or -1)
  elseif ARGV[1] ~= '0' then
    redis.call('hset', lock, holder, ARGV[1])
    out[i] = 0
  else
    redis.call(publish, channel, '0') -- first: it may be refused
    redis.call('del', lock)
    -- pcall: a Redis out of memory refuses the latch, and must still free the lock.
    redis.pcall('set', latch, '1', 'PX', ARGV[2])
    out[i] = 1
  end
end
return out

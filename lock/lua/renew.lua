-- Makes leases last longer, never shorter.
--
-- KEYS the locks
-- ARGV[1] lease, ms
-- ARGV[2] and following: the holders
-- Replies for each lock: 1 renewed, 0 the holder is not there.

local there = {}
for i, key in ipairs(KEYS) do
  there[i] = redis.call('hexists', key, ARGV[1 + i])
  if there[i] == 1 and redis.call('pttl', key) < tonumber(ARGV[1]) then
    redis.call('pexpire', key, ARGV[1])
  end
end
return there

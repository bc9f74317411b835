-- Makes leases last longer, never shorter.
--
-- KEYS[i]    a lock
-- ARGV[2i-1] its holder
-- ARGV[2i]   lease, ms
-- Replies a list: 1 renewed, 0 the holder is not there.

local there = {}
for i, key in ipairs(KEYS) do
  there[i] = redis.call('hexists', key, ARGV[2 * i - 1])
  if there[i] == 1 and redis.call('pttl', key) < tonumber(ARGV[2 * i]) then
    redis.call('pexpire', key, ARGV[2 * i])
  end
end
return there

-- Makes leases last longer, or just so long.
--
-- KEYS the locks
-- ARGV[1] lease, ms
-- ARGV[2] 1: they may be shortened
-- ARGV[3] and following: the holders
-- Replies for each lock: 1 renewed, 0 the holder is not there.

local there = {}
for i, key in ipairs(KEYS) do
  there[i] = redis.call('hexists', key, ARGV[2 + i])
  if there[i] == 1 and ARGV[2] == '1' then
    redis.call('pexpire', key, ARGV[1])
  elseif there[i] == 1 then
    last(key, ARGV[2 + i], ARGV[1])
  end
end
return there

-- Makes leases of plain locks last longer, never shorter.
--
-- KEYS, ARGV and replies as in renew.lua.

local there = {}
for i, key in ipairs(KEYS) do
  there[i] = redis.call('get', key) == ARGV[2 * i - 1] and 1 or 0
  if there[i] == 1 and redis.call('pttl', key) < tonumber(ARGV[2 * i]) then
    redis.call('pexpire', key, ARGV[2 * i])
  end
end
return there

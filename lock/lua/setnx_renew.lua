-- Makes leases of plain locks last longer, or just so long.
--
-- KEYS, ARGV and replies as in renew.lua.

local there = {}
for i, key in ipairs(KEYS) do
  there[i] = redis.call('get', key) == ARGV[2 + i] and 1 or 0
  if there[i] == 1 and ARGV[2] == '1' then
    redis.call('pexpire', key, ARGV[1])
  elseif there[i] == 1 then
    last(key, ARGV[2 + i], ARGV[1])
  end
end
return there

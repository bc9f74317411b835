-- Frees plain locks that their holders have: compare and delete. A count above
-- zero changes nothing, since no count is kept.
--
-- KEYS, ARGV and replies as in release.lua.

local publish = ARGV[3] == '1' and 'spublish' or 'publish'
local out = {}
for i = 1, #KEYS / 3 do
  local lock, channel, latch, holder = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], ARGV[4 + i]
  if redis.call('get', lock) ~= holder then
    local answer = redis.call('get', latch)
    if not answer and ARGV[4] == '1' then
      redis.pcall('set', latch, '-1', 'PX', ARGV[2])
    end
    out[i] = tonumber(answer or -1)
  elseif ARGV[1] ~= '0' then
    out[i] = 0
  else
    redis.call(publish, channel, '0') -- first: it may be refused
    redis.call('del', lock)
    redis.pcall('set', latch, '1', 'PX', ARGV[2])
    out[i] = 1
  end
end
return out

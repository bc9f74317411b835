-- Hands the lock from a holder to another one of the same process, or frees it
-- when somebody elsewhere waits for it too.
--
-- KEYS[1] the lock: hash {holder: hold count}
-- KEYS[2] the channel
-- KEYS[3] the latch of the first holder
-- KEYS[4] the latch of the second holder
-- KEYS[5] the token counter
-- ARGV[1] first holder
-- ARGV[2] second holder
-- ARGV[3] lease of the second holder, ms
-- ARGV[4] how long a latch lasts, ms
-- ARGV[5] the publishing command
-- ARGV[6] how many subscriptions of the channel are this process' own
-- ARGV[7] how long the token counter outlives this, ms; 0 for ever; -1 no tokens
-- Replies {1, token} handed over; {0, 0} freed; {-1, 0} the first was not there.

if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  if redis.call('get', KEYS[3]) ~= '1' then return {-1, 0} end
  -- A repetition.
  if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return {0, 0} end
  return {1, ARGV[7] ~= '-1' and tonumber(redis.call('get', KEYS[5]) or 0) or 0}
end

local listeners = redis.call('pubsub', ARGV[5] == 'spublish' and 'shardnumsub' or 'numsub', KEYS[2])[2]
if tonumber(listeners) > tonumber(ARGV[6]) or redis.call('exists', KEYS[4]) == 1 then
  redis.call('del', KEYS[1])
  redis.call(ARGV[5], KEYS[2], '0')
  redis.pcall('set', KEYS[3], '1', 'PX', ARGV[4])
  return {0, 0}
end
redis.call('hset', KEYS[1], ARGV[2], 1)
redis.call('hdel', KEYS[1], ARGV[1])
redis.call('pexpire', KEYS[1], ARGV[3])
redis.pcall('set', KEYS[3], '1', 'PX', ARGV[4])
if ARGV[7] == '-1' then return {1, 0} end

-- As in acquire.lua.
local function put(text)
  if ARGV[7] == '0' then return redis.call('set', KEYS[5], text, 'GET') end
  return redis.call('set', KEYS[5], text, 'PX', ARGV[7], 'GET')
end
local t = redis.call('time')
local now = t[1] .. string.format('%06d', t[2])
local last = put(now)
local next = math.max(tonumber(now), tonumber(last or 0) + 1)
if next > tonumber(now) then put(string.format('%.0f', next)) end
return {1, next}

-- Hands the lock from a holder to another one of the same process, or frees it
-- when somebody elsewhere waits for it too.
--
-- KEYS[1] the lock: hash {holder: hold count}
-- KEYS[2] the channel
-- KEYS[3] the latch of the first holder
-- KEYS[4] the latch of the second holder
-- KEYS[5] the token counter
-- ARGV[1] lease of the second holder, ms
-- ARGV[2] how long a latch lasts, ms
-- ARGV[3] 1: messages are sharded (Cluster)
-- ARGV[4] how many subscriptions of the channel are this process' own
-- ARGV[5] how long the token counter outlives this, ms; 0 for ever; -1 no tokens
-- ARGV[6] first holder
-- ARGV[7] second holder
-- Replies 1 and the token: handed over; 0 and 0: freed; -1 and 0: the first was not there.

local lock, channel, latch, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local lease, retention, from, to = ARGV[1], ARGV[5], ARGV[6], ARGV[7]
local sharded = ARGV[3] == '1'

if redis.call('hexists', lock, from) == 0 then
  if redis.call('get', latch) ~= '1' then return {-1, 0} end
  -- A repetition. The second holder counts its lease from this request.
  if redis.call('hexists', lock, to) == 0 then return {0, 0} end
  if redis.call('pttl', lock) < tonumber(lease) then
    redis.call('pexpire', lock, lease)
  end
  return {1, retention ~= '-1' and tonumber(redis.call('get', counter) or 0) or 0}
end

local listeners = redis.call('pubsub', sharded and 'shardnumsub' or 'numsub', channel)[2]
if tonumber(listeners) > tonumber(ARGV[4]) or redis.call('exists', KEYS[4]) == 1 then
  redis.call(sharded and 'spublish' or 'publish', channel, '0') -- first: it may be refused
  redis.call('del', lock)
  redis.pcall('set', latch, '1', 'PX', ARGV[2])
  return {0, 0}
end
redis.call('hset', lock, to, 1)
redis.call('hdel', lock, from)
redis.call('pexpire', lock, lease)
redis.pcall('set', latch, '1', 'PX', ARGV[2])
if retention == '-1' then return {1, 0} end

-- As in acquire.lua.
local function put(text)
  if retention == '0' then return redis.call('set', counter, text, 'GET') end
  return redis.call('set', counter, text, 'PX', retention, 'GET')
end
local t = redis.call('time')
local now = t[1] .. string.format('%06d', t[2])
local last = put(now)
local next = math.max(tonumber(now), tonumber(last or 0) + 1)
if next > tonumber(now) then put(string.format('%.0f', next)) end
return {1, next}

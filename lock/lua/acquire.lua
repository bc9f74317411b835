-- Takes locks, or sets the hold count of a holder that has its lock. Carried out
-- twice it changes nothing more: the count is absolute.
--
-- KEYS of each lock:
--   the lock: hash {holder: hold count}
--   the latch of the holder: there once its acquisition is over
--   the token counter, if tokens are kept
-- ARGV[1] lease, ms
-- ARGV[2] hold count afterwards
-- ARGV[3] how long a token counter outlives this, ms; 0 for ever; -1 no tokens
-- ARGV[4] a token is to be at least this
-- ARGV[5] and following: the holders
-- Replies two numbers for each lock: 1 and the token: held; 0 and the ms left, or
--   -1: held by another; -1 and 0: lost, because the acquisition is over, or
--   because it is a re-entry and the lock is gone.

local lease, holds, retention, least = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local tokens = retention ~= '-1'
local keys = tokens and 3 or 2
local put, token

if tokens then
  local t = redis.call('time')
  local now = t[1] .. string.format('%06d', t[2])

  put = function(counter, text)
    if retention == '0' then return redis.call('set', counter, text, 'GET') end
    return redis.call('set', counter, text, 'PX', retention, 'GET')
  end

  -- A token is greater than the one before it and not below the server's clock in
  -- microseconds: so it still grows after the counter expired, was flushed, or
  -- stayed behind on a primary that was replaced. Numbers go to Redis as text,
  -- because Lua would write large ones with an exponent.
  token = function(counter)
    local last = put(counter, now)
    local next = math.max(tonumber(now), tonumber(last or 0) + 1, tonumber(least))
    if next > tonumber(now) then put(counter, string.format('%.0f', next)) end
    return next
  end
end

local function take(lock, latch, counter, holder)
  if redis.call('exists', lock, latch) == 0 then
    if holds ~= '1' then return -1, 0 end
    local number = tokens and token(counter) or 0 -- first: it may be refused
    redis.call('hset', lock, holder, 1)
    redis.call('pexpire', lock, lease)
    return 1, number
  end

  if redis.call('hexists', lock, holder) == 1 then
    redis.call('hset', lock, holder, holds)
    last(lock, holder, lease)
    if not tokens then return 1, 0 end
    local mine = tonumber(redis.call('get', counter) or 0)
    if mine < tonumber(least) then
      mine = tonumber(least)
      put(counter, string.format('%.0f', mine))
    end
    return 1, mine
  end

  local other = redis.call('hscan', lock, 0)[2][1]
  if holds ~= '1' or not other then return -1, 0 end
  return 0, last(lock, other)
end

local out = {}
for i = 1, #KEYS / keys do
  local first = keys * (i - 1)
  out[2 * i - 1], out[2 * i] = take(KEYS[first + 1], KEYS[first + 2], KEYS[first + 3], ARGV[4 + i])
end
return out

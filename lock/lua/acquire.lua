-- Takes the lock, or sets the hold count of a holder that has it. Carried out
-- twice it changes nothing more: the count is absolute.
--
-- KEYS[1] the lock: hash {holder: hold count}
-- KEYS[2] the token counter
-- KEYS[3] the latch of this holder: there once its acquisition is over
-- ARGV[1] holder
-- ARGV[2] hold count afterwards
-- ARGV[3] lease, ms
-- ARGV[4] how long the token counter outlives this, ms; 0 for ever; -1 no tokens
-- ARGV[5] the token is to be at least this
-- Replies {1, token} held; {0, ms left or -1} held by another; {-1, 0} lost:
--   the acquisition is over, or it is a re-entry and the lock is gone.

-- A token is greater than the one before it and not below the server's clock in
-- microseconds: so it still grows after the counter expired, was flushed, or
-- stayed behind on a primary that was replaced. Numbers go to Redis as text,
-- because Lua would write large ones with an exponent.
local function put(text)
  if ARGV[4] == '0' then return redis.call('set', KEYS[2], text, 'GET') end
  return redis.call('set', KEYS[2], text, 'PX', ARGV[4], 'GET')
end

local function token()
  if ARGV[4] == '-1' then return 0 end
  local t = redis.call('time')
  local now = t[1] .. string.format('%06d', t[2])
  local last = put(now)
  local next = math.max(tonumber(now), tonumber(last or 0) + 1, tonumber(ARGV[5]))
  if next > tonumber(now) then put(string.format('%.0f', next)) end
  return next
end

if redis.call('exists', KEYS[1], KEYS[3]) == 0 then
  if ARGV[2] ~= '1' then return {-1, 0} end
  redis.call('hset', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[3])
  return {1, token()}
end

if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
  if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('pexpire', KEYS[1], ARGV[3])
  end
  if ARGV[4] == '-1' then return {1, 0} end
  local mine, least = tonumber(redis.call('get', KEYS[2]) or 0), tonumber(ARGV[5])
  if mine < least then
    mine = least
    put(string.format('%.0f', least))
  end
  return {1, mine}
end

local left = redis.call('pttl', KEYS[1])
if ARGV[2] ~= '1' or left == -2 then return {-1, 0} end
return {0, left}

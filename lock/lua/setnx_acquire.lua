-- Takes a plain lock: SET NX PX with the holder as the value.
--
-- KEYS and ARGV as in acquire.lua; the hold count is not kept, only compared
-- with 1 to tell a first acquisition from a re-entry.
-- Replies as in acquire.lua.

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

if redis.call('get', KEYS[1]) == ARGV[1] then
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
if ARGV[2] ~= '1' or redis.call('exists', KEYS[3]) == 1 then return {-1, 0} end
if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return {1, token()} end
return {0, redis.call('pttl', KEYS[1])}

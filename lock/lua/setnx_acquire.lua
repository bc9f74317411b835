-- Takes plain locks: SET NX PX with the holder as the value.
--
-- KEYS and ARGV as in acquire.lua; the hold count is not kept, only compared
-- with 1 to tell a first acquisition from a re-entry.
-- Replies as in acquire.lua.

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

  token = function(counter) -- as in acquire.lua
    local last = put(counter, now)
    local next = math.max(tonumber(now), tonumber(last or 0) + 1, tonumber(least))
    if next > tonumber(now) then put(counter, string.format('%.0f', next)) end
    return next
  end
end

local function take(lock, latch, counter, holder)
  local there = redis.call('get', lock)
  if there == holder then
    last(lock, holder, lease)
    if not tokens then return 1, 0 end
    local mine = tonumber(redis.call('get', counter) or 0)
    if mine < tonumber(least) then
      mine = tonumber(least)
      put(counter, string.format('%.0f', mine))
    end
    return 1, mine
  end

  if holds ~= '1' or redis.call('exists', latch) == 1 then return -1, 0 end
  if there then return 0, last(lock, there) end
  local number = tokens and token(counter) or 0 -- first: it may be refused
  redis.call('set', lock, holder, 'PX', lease)
  return 1, number
end

local out = {}
for i = 1, #KEYS / keys do
  local first = keys * (i - 1)
  out[2 * i - 1], out[2 * i] = take(KEYS[first + 1], KEYS[first + 2], KEYS[first + 3], ARGV[4 + i])
end
return out

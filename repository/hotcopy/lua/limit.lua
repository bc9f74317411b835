-- Takes one event from the quota of one sender that all instances share: the generic
-- cell rate algorithm, on this server's clock. It stands alone, without head.lua.
--
-- KEYS[1]  the instant, in µs since 1970, at which nothing of the quota is in use any
--          more; absent: nothing is
-- ARGV[1]  µs in which one event is given back
-- ARGV[2]  µs in which all events that may come at once are
-- ARGV[3]  events that an instance has let pass before, to be counted now. What they are
--          beyond the quota is forgiven
--
-- Reply: {µs until an event is allowed, 0: this one was counted; events that are left}
local emission, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local idle = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
idle = math.min(idle + ARGV[3] * emission, now + capacity)
local wait = idle + emission - now - capacity
if wait < 1 then -- less than the clock can tell
  idle = idle + emission
  wait = 0
end
redis.call('SET', KEYS[1], string.format('%.3f', idle), 'PX', math.ceil((idle - now) / 1000) + 1)
return {math.ceil(wait), math.max(math.floor((now + capacity - idle) / emission + 0.001), 0)}

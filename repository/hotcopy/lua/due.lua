-- Lists pending entries that were published long ago, the oldest first. Those that a rebuild has carried over come
-- before all others, in no order of their own.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] how long ago at the least, ms
-- ARGV[4] at most how many
-- Replies {1, epoch, order id, pending entry, order id, ...}.

look()
local why = shut()
if why then return why end
local ids = redis.call('zrangebyscore', KEYS[4], '-inf', text(math.floor(clock() / 1000) - tonumber(ARGV[3])),
  'LIMIT', '0', ARGV[4])
local answer = reply(1)
if #ids == 0 then return answer end
local entries = redis.call('hmget', KEYS[3], unpack(ids))
for i = 1, #ids do
  answer[#answer + 1] = ids[i]
  answer[#answer + 1] = entries[i] or ''
end
return answer

-- Opens a loaded copy, if it is all there and nobody has begun another.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- KEYS[6...] the keys of the copy before, which may go
-- ARGV[3] number of marks
-- ARGV[4] number of pending entries
-- ARGV[5] ms since 1970 until which the copy is kept
-- ARGV[6] how long it is kept at the least, ms
-- ARGV[7] how long the copy before is kept, ms
-- ARGV[8...] names and values of the voucher's fields
-- Replies {1, epoch}, also when this epoch is open already; {0, epoch} the copy
--   has another epoch or server, is not complete, or was open and closed since.

if head.epoch ~= ARGV[1] or head.run_id ~= server() or not loaded() then return reply(0) end
if head.opened == ARGV[1] then return reply(head.state == 'open' and 1 or 0) end
if redis.call('hlen', KEYS[2]) - 1 ~= tonumber(ARGV[3]) or redis.call('hlen', KEYS[3]) - 1 ~= tonumber(ARGV[4]) then
  return reply(0)
end
redis.call('hset', KEYS[1], 'state', 'open', 'opened', ARGV[1], 'changes', '0', unpack(ARGV, 8))
local keep = text(math.max(tonumber(ARGV[5]), math.floor(clock() / 1000) + tonumber(ARGV[6])))
for i = 1, 5 do redis.call('pexpireat', KEYS[i], keep) end
for i = 6, #KEYS do redis.call('pexpire', KEYS[i], ARGV[7]) end
return reply(1)

-- Opens a loaded copy, if nobody has begun another, and frees the copy before.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- KEYS[6...] the keys of the copy before
-- ARGV[3] units of the stock that the database can not sell
-- ARGV[4] ms since 1970 until which the copy is kept
-- ARGV[5] how long it is kept at the least, ms
-- ARGV[6...] names and values of the voucher's fields
-- Replies {1, epoch} also when this epoch is open already; {0, epoch} the copy has another
--   epoch or server, or was not loaded, or something of it was lost.

look()
if head.epoch ~= ARGV[1] or head.server ~= server() or not loaded() then return reply(0) end
if head.state == 'open' then return reply(1) end
if head.state ~= 'rebuilding' then return reply(0) end
local keep = text(math.max(tonumber(ARGV[4]), math.floor(clock() / 1000) + tonumber(ARGV[5])))
for i = 1, 5 do write('pexpireat', KEYS[i], keep) end
if #KEYS > 5 then write('unlink', unpack(KEYS, 6)) end
-- The last change: before it the copy is not open, and another rebuild may begin anew.
write('hset', KEYS[1], 'state', 'open', 'opened', ARGV[1], 'changes', '0', 'missing', ARGV[3], unpack(ARGV, 6))
tellReturn()
return reply(1)

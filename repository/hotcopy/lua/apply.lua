-- Brings what an administrator changed, unless the copy has something newer.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] the voucher's revision
-- ARGV[4] ms since 1970 until which the copy is kept
-- ARGV[5] how long it is kept at the least, ms
-- ARGV[6...] names and values of the voucher's fields
-- Replies {1, epoch} also when it has something newer; {2, epoch} nothing was done, because the copy is sold out, gets more stock, and
--   users may have waited for that: it has to be rebuilt.

look()
local why = shut()
if why then return why end
if tonumber(head.revision) >= tonumber(ARGV[3]) then return reply(1) end
if waitlist() and free() <= 0 then
  for i = 6, #ARGV, 2 do
    if ARGV[i] == 'stock' and tonumber(ARGV[i + 1]) > tonumber(head.stock) then return reply(2) end
  end
end
local keep = text(math.max(tonumber(ARGV[4]), math.floor(clock() / 1000) + tonumber(ARGV[5])))
for i = 1, 5 do write('pexpireat', KEYS[i], keep) end
write('hset', KEYS[1], 'changes', text(tonumber(head.changes) + 1), unpack(ARGV, 6))
tellReturn()
return reply(1)

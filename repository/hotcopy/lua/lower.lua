-- Lowers the stock, unless more than that is taken already.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] the stock to be
-- ARGV[4] the voucher's revision at which that was decided
-- Replies {1, epoch}; {2, epoch} more is taken; {3, epoch} the copy has something newer.

look()
local why = shut()
if why then return why end
if tonumber(head.revision) > tonumber(ARGV[4]) then return reply(3) end
local off = tonumber(head.off or '0')
local fewer = tonumber(head.stock) - off - tonumber(ARGV[3])
if free() < fewer then return reply(2) end
write('hset', KEYS[1], 'changes', text(tonumber(head.changes) + 1), 'revision', ARGV[4],
  'stock', fewer > 0 and text(ARGV[3] + off) or head.stock)
return reply(1)

-- Reads a copy.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- Replies {1 or 0, epoch, now us, state, buyers, pending, left, changes, revision,
--   stock, price, currency, begin us, end us, vstate, due, rules}; 1 when open. Buyers,
--   pending and due are '' while the keys are not there, and left is '' unless it is open.

look()
if head.epoch and head.epoch ~= ARGV[1] then return reply(-1) end
local why = shut()
local buyers, pending, due = '', '', ''
if loaded() then
  buyers = text(redis.call('hlen', KEYS[2]) - 1)
  pending = text(redis.call('hlen', KEYS[3]) - 1)
  due = text(redis.call('zcard', KEYS[4]) - 1)
end
local left = why and '' or text(free())
local state = head.state
if why and state ~= 'rebuilding' then state = 'closed' end
return reply(why and 0 or 1, text(clock()), state, buyers, pending, left, head.changes or '0', head.revision or '0',
  text(tonumber(head.stock or '0') - tonumber(head.off or '0')), head.price or '0', head.currency or '', head.begin_us or '0', head.end_us or '0', head.vstate or '', due,
  head.rules or '')

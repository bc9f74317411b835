-- Finds an order by its id, or the one a user's mark names, and its pending
-- entry.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] order id, or empty
-- ARGV[4] user, when there is no order id
-- Replies {1 open or 0 closed, epoch, order id or '', pending entry or ''}; both
--   are '' when closed.

look()
if head.epoch and head.epoch ~= ARGV[1] then return reply(-1) end
if shut() then return reply(0, '', '') end
local id = ARGV[3]
if id == '' then id = redis.call('hget', KEYS[2], ARGV[4]) or '' end
return reply(1, id, redis.call('hget', KEYS[3], id == '' and ' ' or id) or '')

-- Closes a copy that was found to be wrong.
--
-- KEYS[1], ARGV[1], ARGV[2] as in head.lua; no other key is touched
-- Replies {1, epoch} closed; {0, epoch} it was not open with that epoch.

if head.state ~= 'open' or head.epoch ~= ARGV[1] then return reply(0) end
redis.call('hset', KEYS[1], 'state', 'closed')
redis.call('hincrby', KEYS[1], 'changes', 1)
return reply(1)

-- Says that the closed copy is being loaded.
--
-- KEYS[1], ARGV[1], ARGV[2] as in head.lua; no other key is touched
-- Replies {1, epoch}; {0, epoch} it has another epoch, or was opened already.

if head.epoch ~= ARGV[1] or head.opened == ARGV[1] then return reply(0) end
redis.call('hset', KEYS[1], 'state', 'rebuilding')
return reply(1)

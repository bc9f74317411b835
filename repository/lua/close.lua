-- Closes the copy for a rebuild, which gets the epoch given.
--
-- KEYS[1], ARGV[1], ARGV[2] as in head.lua; no other key is touched
-- ARGV[3] how long the head is kept at the least, ms
-- Replies {1, epoch}; {0, epoch} the head has a greater epoch, or this one was
--   opened already.

-- Whatever is no number gives way too: nothing else could repair it.
local known = tonumber(head.epoch or '') or 0
if known > tonumber(ARGV[1]) or head.opened == ARGV[1] then return reply(0) end
-- From here on the copy is bound to this server: what is loaded into another
-- one, or before a restart, cannot be opened.
redis.call('hset', KEYS[1], 'epoch', ARGV[1], 'state', 'closed', 'run_id', server())
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then redis.call('pexpire', KEYS[1], ARGV[3]) end
head.epoch = ARGV[1]
return reply(1)

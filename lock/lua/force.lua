-- Frees the lock whoever holds it.
--
-- KEYS[1] the lock
-- KEYS[2] the channel
-- ARGV[1] the publishing command
-- Replies 1 it was held; 0 it was not.

local was = redis.call('del', KEYS[1])
if was == 1 then redis.call(ARGV[1], KEYS[2], '0') end
return was

-- Tells whether the copy is open, and in which epoch.
--
-- KEYS[1], ARGV[1], ARGV[2] as in head.lua; no other key is looked at
-- Replies {1, epoch} open; {0, epoch} closed.

if head.state == 'open' and head.server == server() then return reply(1) end
return reply(0)

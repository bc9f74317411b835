-- Removes the pending entries of orders whose rows are committed, and tells
-- those who wait for them. A copy that is being loaded is not touched.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] the channel on which those who wait for the orders listen
-- ARGV[4...] order ids
-- Replies {1, epoch}.

-- A copy that was closed because it is wrong still answers who is pending, so
-- it is settled too; until its keys are given up, which is another epoch.
local kept = head.epoch and head.opened == head.epoch
if kept and head.epoch ~= ARGV[1] then return reply(-1) end
if kept then
  redis.call('hdel', KEYS[3], unpack(ARGV, 4))
  redis.call('zrem', KEYS[4], unpack(ARGV, 4))
end
redis.call('publish', ARGV[3], table.concat(ARGV, ' ', 4))
return reply(1)

-- Removes the pending entries of orders whose rows are committed, and tells
-- those who wait for them. A closed copy is not touched: its rebuild looks for the
-- rows.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] the channel on which those who wait for the orders listen
-- ARGV[4...] order ids
-- Replies {1, epoch}.

-- Also one that another server was loaded with: the rows are there all the same.
if head.state == 'open' then
  if head.epoch ~= ARGV[1] then return reply(-1) end
  redis.call('hdel', KEYS[3], unpack(ARGV, 4))
  redis.call('zrem', KEYS[4], unpack(ARGV, 4))
end
redis.call('publish', ARGV[3], table.concat(ARGV, ' ', 4))
return reply(1)

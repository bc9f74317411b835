-- Loads some of a closed copy. Live orders and carried ones may come in any
-- order: a user's live order wins.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] how long the keys of a load that is given up are kept, ms
-- ARGV[4] number of live orders
-- ARGV[5] number of orders that are carried over; with nothing of any kind the load begins
-- ARGV[6...] for each live order: its user, its id; then the users of those that are
--   carried over; then for each of these: its id, its pending entry, which is due at once; then, for users who wait before
--   another order, until when, in ms since 1970, and '/' and the user
-- Replies {1, epoch}; {0, epoch} the copy has another epoch or server, is open,
--   or something of it was lost since the load began.

look()
if head.epoch ~= ARGV[1] or head.server ~= server() or head.state == 'open' then return reply(0) end
local live, carried = tonumber(ARGV[4]), tonumber(ARGV[5])
if #ARGV == 5 and head.state == 'closed' then
  write('hset', KEYS[1], 'state', 'rebuilding')
  write('hset', KEYS[2], '', '1')
  write('hset', KEYS[3], '', '1')
  write('zadd', KEYS[4], '+inf', '')
  write('zadd', KEYS[5], '+inf', '')
elseif head.state ~= 'rebuilding' or not loaded() then
  return reply(0)
end

local users = 6 + 2 * live
local entries = users + carried
if live > 0 then write('hset', KEYS[2], unpack(ARGV, 6, users - 1)) end
if carried > 0 then
  local known = redis.call('hmget', KEYS[2], unpack(ARGV, users, entries - 1))
  -- Each score is one more than the last, so all are of the first hour of 1970: a sorted set takes what belongs at its
  -- end faster than what belongs anywhere.
  local score = redis.call('zcard', KEYS[4])
  local marks, due = {}, {}
  for i = 1, carried do
    local id = ARGV[entries + 2 * i - 2]
    if not known[i] then
      marks[#marks + 1] = ARGV[users + i - 1]
      marks[#marks + 1] = id
    end
    due[2 * i - 1], due[2 * i] = score + i, id
  end
  if #marks > 0 then write('hset', KEYS[2], unpack(marks)) end
  write('hset', KEYS[3], unpack(ARGV, entries))
  write('zadd', KEYS[4], unpack(due))
end
local waits = entries + 2 * carried
if waits <= #ARGV then write('zadd', KEYS[5], unpack(ARGV, waits)) end
for i = 2, 5 do write('pexpire', KEYS[i], ARGV[3]) end
return reply(1)

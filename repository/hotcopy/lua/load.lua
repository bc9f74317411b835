-- Loads a part of a closed copy. Live orders and carried ones may come in any
-- order: a user's live order wins.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] how long the keys of a load that is given up are kept, ms
-- ARGV[4] number of live orders; with none of either kind the load begins
-- ARGV[5...] for each live order: its user, its id; then for each order that is
--   carried over: its user, its id, its pending entry, which is due at once
-- Replies {1, epoch}; {0, epoch} the copy has another epoch or server, is open,
--   or something of it was lost since the load began.

if head.epoch ~= ARGV[1] or head.server ~= server() or head.state == 'open' then return reply(0) end
if #ARGV == 4 and head.state == 'closed' then
  redis.call('hset', KEYS[1], 'state', 'rebuilding')
  redis.call('hset', KEYS[2], '', '1')
  redis.call('hset', KEYS[3], '', '1')
  redis.call('zadd', KEYS[4], '+inf', '')
  redis.call('zadd', KEYS[5], '+inf', '')
elseif head.state ~= 'rebuilding' or not loaded() then
  return reply(0)
end

local carried = 5 + 2 * tonumber(ARGV[4])
if carried > 5 then redis.call('hset', KEYS[2], unpack(ARGV, 5, carried - 1)) end
local users, marks, entries, due = {}, {}, {}, {}
for i = carried, #ARGV, 3 do
  users[#users + 1] = ARGV[i]
  local n = #entries
  entries[n + 1], entries[n + 2] = ARGV[i + 1], ARGV[i + 2]
  due[n + 1], due[n + 2] = '0', ARGV[i + 1]
end
if #users > 0 then
  local known = redis.call('hmget', KEYS[2], unpack(users))
  for i = 1, #users do
    if not known[i] then
      marks[#marks + 1] = users[i]
      marks[#marks + 1] = entries[2 * i - 1]
    end
  end
  if #marks > 0 then redis.call('hset', KEYS[2], unpack(marks)) end
  redis.call('hset', KEYS[3], unpack(entries))
  redis.call('zadd', KEYS[4], unpack(due))
end
for i = 2, 5 do redis.call('pexpire', KEYS[i], ARGV[3]) end
return reply(1)

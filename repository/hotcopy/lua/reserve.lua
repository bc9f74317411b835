-- Admits buyers: takes a unit for each order, marks its user and writes its
-- pending entry, all or nothing of each. Carried out twice it changes nothing
-- more.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- KEYS[6...] the lock's key for each order that wants it looked at, in order
-- ARGV[3...] for each order: its id; its user; 0, or a sum of 1: look whether
--   somebody holds the user's lock, 2: outside the sale's window too
-- Replies {1, epoch, now us, price, currency, vstate, begin us, end us, ...}
--   and a word for each order: 'r' reserved; 'p' and the pending entry: was
--   reserved before; 's' was reserved before and is settled; 'x' is closed;
--   'w' outside the window; 'l' the lock is held; 'a', 1 when that one is
--   pending or else 0, and the id of the user's other order; 'o' sold out.

local why = shut()
if why then return why end

local users, ids = {}, {}
for i = 3, #ARGV, 3 do
  ids[#ids + 1] = ARGV[i]
  users[#users + 1] = ARGV[i + 1]
end
local marks = redis.call('hmget', KEYS[2], unpack(users))
local tombs = redis.call('zcard', KEYS[5]) > 1 and redis.call('zmscore', KEYS[5], unpack(ids)) or {}
local locks = #KEYS > 5 and redis.call('exists', unpack(KEYS, 6)) > 0

local now = clock()
local outside = head.vstate ~= 'published' or now < tonumber(head.begin_us) or now >= tonumber(head.end_us)
local left = free()
local entry = ' ' .. text(now) .. ' ' .. head.price .. ' ' .. head.currency .. ' ' .. head.epoch
local ms = text(math.floor(now / 1000))

local mine = {} -- the marks of this call: user -> order id
local newMarks, newPending, newDue = {}, {}, {}
local key = 5

local function take(id, user)
  left = left - 1
  mine[user] = id
  local n = #newMarks
  newMarks[n + 1], newMarks[n + 2] = user, id
  newPending[n + 1], newPending[n + 2] = id, user .. entry
  newDue[n + 1], newDue[n + 2] = ms, id
  return 'r'
end

local function again(id, user)
  if mine[user] then return 'r' end
  local pending = redis.call('hget', KEYS[3], id)
  return pending and 'p' .. pending or 's'
end

local function decide(i, id, user, flags)
  local lock = flags % 2 == 1
  if lock then key = key + 1 end
  local mark = mine[user] or marks[i]
  if mark == id then return again(id, user) end
  if tombs[i] then return 'x' end
  if outside and flags < 2 then return 'w' end
  if lock and locks and redis.call('exists', KEYS[key]) == 1 then return 'l' end
  if mark then
    local pending = mine[user] and 1 or redis.call('hexists', KEYS[3], mark)
    return 'a' .. pending .. mark
  end
  if left <= 0 then return 'o' end
  return take(id, user)
end

local answer = reply(1, text(now), head.price, head.currency, head.vstate, head.begin_us, head.end_us)
for i = 1, #ids do
  answer[#answer + 1] = decide(i, ids[i], users[i], tonumber(ARGV[3 * i + 2]))
end
if #newMarks > 0 then
  redis.call('hset', KEYS[2], unpack(newMarks))
  redis.call('hset', KEYS[3], unpack(newPending))
  redis.call('zadd', KEYS[4], unpack(newDue))
  redis.call('hincrby', KEYS[1], 'changes', 1)
end
return answer

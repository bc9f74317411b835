-- The beginning of every script about a voucher's hot copy.
--
-- KEYS[1] head: hash of epoch, state (open, closed, rebuilding), server (which
--   it was loaded into), opened (the last epoch that was opened, here or in the
--   database alone), changes, missing (units of the stock that the database can
--   not sell), and of the voucher: revision, stock, price, currency, begin_us,
--   end_us, vstate
-- The others belong to one epoch of it, and exist only of the head's epoch and
-- of the opened one. Each has a sentinel, '', because Redis knows nothing empty
-- and what is missing is not loaded:
-- KEYS[2] buyers: hash of user -> order id
-- KEYS[3] pending: hash of order id -> 'user created_us price currency epoch'
-- KEYS[4] due: zset of order id -> ms since 1970 of the last publish
-- KEYS[5] closed: zset of order id -> ms since 1970 of its release
-- ARGV[1] the epoch of KEYS[2] to KEYS[5]
-- ARGV[2] what stands for this server; empty: ask it
-- Replies {verdict, epoch of the head or '', ...}. Verdict 0: closed, or
--   superseded; -1: the keys are not those of the head's epoch, nothing was
--   done, the caller is to come back with the right ones.

local field = redis.call('hmget', KEYS[1], 'epoch', 'state', 'server', 'opened', 'revision', 'stock',
  'price', 'currency', 'begin_us', 'end_us', 'vstate', 'changes', 'missing')
local head = {
  epoch = field[1], state = field[2], server = field[3], opened = field[4], revision = field[5], stock = field[6],
  price = field[7], currency = field[8], begin_us = field[9], end_us = field[10], vstate = field[11], changes = field[12],
  missing = field[13],
}

-- The run id tells a server that restarted with an old copy, and another
-- primary, from the one that was loaded; the replication id tells a primary that
-- was a replica meanwhile, whose data may be those of another one.
local function server()
  if ARGV[2] ~= '' then return ARGV[2] end
  return string.match(redis.call('info', 'server'), 'run_id:(%x+)')
    .. ' ' .. string.match(redis.call('info', 'replication'), 'master_replid:(%x+)')
end

local function reply(verdict, ...) return {verdict, head.epoch or '', ...} end

local function loaded()
  return redis.call('hexists', KEYS[2], '') == 1 and redis.call('hexists', KEYS[3], '') == 1
    and redis.call('exists', KEYS[4], KEYS[5]) == 2
end

-- Why the copy cannot be worked with: a reply, or nil when it is open.
local function shut()
  if head.state ~= 'open' then return reply(0) end
  if head.epoch ~= ARGV[1] then return reply(-1) end
  if head.server ~= server() or not loaded() then return reply(0) end
  return nil
end

-- The units that may still be reserved. Nothing counts them, so that no count can
-- drift: they are those of the stock that the database can sell, without those
-- taken.
local function free()
  return tonumber(head.stock) - tonumber(head.missing or '0') - (redis.call('hlen', KEYS[2]) - 1)
end

-- Numbers go to Redis as text: Lua would write large ones with an exponent.
local function text(number) return string.format('%.0f', number) end

-- The server's clock, in microseconds since 1970.
local function clock()
  local t = redis.call('time')
  return t[1] * 1000000 + t[2]
end

-- Gives back the units of closed orders of a voucher with a waitlist, as release.lua does for other vouchers. A unit that has an heir, an
-- order of the user who waited for it, changes hands: it is free at no time. The outbox calls this, with its rows in their order.
-- It acts only while the user's mark is the order, so that it may be repeated. Where the heir's user is marked by another
-- order, an earlier row has to take that mark away: this row and those behind it wait. A call that closed one order tells of it
-- before the outbox, so that an earlier row may not have set the mark yet: then the row waits too.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3], ARGV[4] as in release.lua
-- ARGV[5] empty: rows of the outbox, in their order
-- ARGV[6...] for each order: its id; its user; until when that user waits before another order, in ms since 1970, or empty; the id of
--   the heir and its user, both empty where there is none; 1 where the unit is used, as in release.lua
-- Replies {1, epoch}; {2, epoch} some of the rows wait.

look()
local why = shut()
if why and why[1] == -1 then return why end
local ids, users = {}, {}
for i = 6, #ARGV, 6 do
  ids[#ids + 1] = ARGV[i]
  users[#users + 1] = ARGV[i + 1]
  if ARGV[i + 4] ~= '' then users[#users + 1] = ARGV[i + 4] end
end
tell(ARGV[4], table.concat(ids, ' '))
if why then return why end

local marks, entries = redis.call('hmget', KEYS[2], unpack(users)), redis.call('hmget', KEYS[3], unpack(ids))
local before, after = {}, {} -- user -> the order that marks it
for i, user in ipairs(users) do before[user], after[user] = marks[i], marks[i] end
local ms = math.floor(clock() / 1000)
local done, tombs, cooling, held, waits, off = {}, {}, {}, false, false, 0
for i, id in ipairs(ids) do
  local at = 6 * i
  local user, till, heir, heirUser = ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
  if after[user] == id then
    if heir ~= '' and after[heirUser] and after[heirUser] ~= heir then
      waits = true
      break
    end
    after[user] = false
    if ARGV[at + 5] == '1' then off = off + 1 end
    if heir ~= '' then after[heirUser] = heir end
  elseif ARGV[5] ~= '' then
    waits = true
    break
  end
  if till and till > (tonumber(redis.call('zscore', KEYS[5], '/' .. user) or '') or 0) then
    cooling[#cooling + 1], cooling[#cooling + 2], held = text(till), '/' .. user, true
  end
  held = held or entries[i]
  done[i] = id
  tombs[2 * i - 1], tombs[2 * i] = text(ms), id
end
local gone, marked = {}, {}
for user, was in pairs(before) do
  if was and not after[user] then gone[#gone + 1] = user end
  if after[user] and after[user] ~= was then
    marked[#marked + 1] = user
    marked[#marked + 1] = after[user]
  end
end
if #gone + #marked > 0 and free() <= 0 then tellReturn() end -- also who got a unit: instances remember who has an order
write('zremrangebyscore', KEYS[5], '-inf', '(' .. text(ms - tonumber(ARGV[3])))
if #done > 0 then
  write('zadd', KEYS[5], 'NX', unpack(tombs))
  if held or #gone + #marked > 0 then changed(off) end
  if #cooling > 0 then write('zadd', KEYS[5], 'GT', unpack(cooling)) end
  if #marked > 0 then write('hset', KEYS[2], unpack(marked)) end -- before the others go: broken off in between, a unit too many is taken
  if #gone > 0 then write('hdel', KEYS[2], unpack(gone)) end
  write('hdel', KEYS[3], unpack(done))
  write('zrem', KEYS[4], unpack(done))
end
return reply(waits and 2 or 1)

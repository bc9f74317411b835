-- Gives back the units of closed orders: the exact inverse of their admission. It
-- acts only while the user's mark is that order, and leaves tombstones, so that
-- it may be repeated and an admission that arrives after it is refused.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] how long tombstones last, ms
-- ARGV[4] the channel on which those who wait for the orders listen
-- ARGV[5...] for each order: its id; its user; until when that user waits before another order, in ms since 1970,
--   or empty. Whatever comes late, repeated or in another order, nobody waits less for it; 1 where the unit is used and
--   leaves the stock with the mark, which is why that happens once
-- Replies {1, epoch} also when there was nothing left to do; {2, epoch} nothing was done: see handover.lua.

look()
local why = shut()
if why and why[1] == -1 then return why end
local ids, users, tombs, waiting, waits, used = {}, {}, {}, {}, {}, {}
local ms = math.floor(clock() / 1000)
for i = 5, #ARGV, 4 do
  local n = #ids + 1
  ids[n], users[n], used[n] = ARGV[i], ARGV[i + 1], ARGV[i + 3]
  tombs[2 * n - 1], tombs[2 * n] = text(ms), ARGV[i]
  local user, till = '/' .. users[n], tonumber(ARGV[i + 2])
  if till then
    if not waits[user] then waiting[#waiting + 1] = user end
    waits[user] = math.max(till, waits[user] or 0)
  end
end
tell(ARGV[4], table.concat(ids, ' '))
if why then return why end
if waitlist() then return reply(2) end

local marks, entries = redis.call('hmget', KEYS[2], unpack(users)), redis.call('hmget', KEYS[3], unpack(ids))
local gone, held, cooling, off = {}, false, {}, 0
local known = #waiting > 0 and redis.call('zmscore', KEYS[5], unpack(waiting))
for i, user in ipairs(waiting) do
  if waits[user] > (tonumber(known[i] or '') or 0) then
    cooling[#cooling + 1], cooling[#cooling + 2], held = text(waits[user]), user, true
  end
end
for i, id in ipairs(ids) do
  if marks[i] == id then
    gone[#gone + 1] = users[i]
    if used[i] == '1' then off = off + 1 end
  end
  held = held or entries[i] or marks[i] == id
end
if #gone > off and free() <= 0 then tellReturn() end
-- A Redis that is out of memory refuses only a script's first write, and only
-- if it may take memory: this one does not.
write('zremrangebyscore', KEYS[5], '-inf', '(' .. text(ms - tonumber(ARGV[3])))
write('zadd', KEYS[5], 'NX', unpack(tombs))
if held then changed(off) end -- before the marks are gone: broken off in between, a unit too few is sold, none too many
if #cooling > 0 then write('zadd', KEYS[5], unpack(cooling)) end -- before the mark is gone
if #gone > 0 then write('hdel', KEYS[2], unpack(gone)) end
write('hdel', KEYS[3], unpack(ids))
write('zrem', KEYS[4], unpack(ids))
return reply(1)

-- Closes the copy for a rebuild, which gets the epoch given, and frees what lies
-- under the names of that and of every other epoch, but for the opened one: the
-- rebuild carries its pending entries over.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- KEYS[6...] the keys of the epochs in ARGV[5...]
-- ARGV[3] how long the head is kept at the least, ms
-- ARGV[4] the epoch that the database has opened last; 0: none
-- ARGV[5...] epochs whose keys are given
-- Replies {1, epoch}; {0, epoch} the head has a greater
--   epoch, or this one was opened already; {2, epoch, ...} nothing was done, the caller is to
--   come back with the keys of these epochs too.

look()
-- Whatever is no number gives way too: nothing else could repair it.
local known = tonumber(head.epoch or '') or 0
if known > tonumber(ARGV[1]) or head.opened == ARGV[1] then return reply(0) end
-- A repetition that comes late must not undo what was loaded since.
if head.epoch == ARGV[1] then return reply(1) end

local kept = {[ARGV[4]] = true}
for i = 5, #ARGV do kept[ARGV[i]] = true end
local more = {}
for _, epoch in ipairs({head.epoch or '', head.opened or ''}) do
  if not kept[epoch] and string.match(epoch, '^[1-9]%d*$') then more[#more + 1] = epoch end
end
if #more > 0 then return reply(2, unpack(more)) end

-- First, so that a Redis that is full can be helped too.
write('unlink', unpack(KEYS, 2))
-- From here on the copy is bound to this server: what is loaded into another
-- one, or before a restart, cannot be opened.
write('hset', KEYS[1], 'epoch', ARGV[1], 'state', 'closed', 'opened', ARGV[4], 'server', server())
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then write('pexpire', KEYS[1], ARGV[3]) end
head.epoch = ARGV[1]
return reply(1)

-- Makes what is due agree with what is pending: notes pending entries as published now, and lets go of orders that are
-- pending no more.
--
-- KEYS[1] to KEYS[5], ARGV[1], ARGV[2] as in head.lua
-- ARGV[3] 'NX': only pending entries that are not due at any time; or empty
-- ARGV[4...] order ids
-- Replies {1, epoch}. The entries are left alone: a rebuild may have given them
--   another epoch meanwhile.

look()
local why = shut()
if why then return why end
local ms = text(math.floor(clock() / 1000))
local due, gone = {ARGV[3] ~= '' and ARGV[3] or 'CH'}, {}
for i, entry in ipairs(redis.call('hmget', KEYS[3], unpack(ARGV, 4))) do
  if entry then
    due[#due + 1], due[#due + 2] = ms, ARGV[i + 3]
  else
    gone[#gone + 1] = ARGV[i + 3]
  end
end
if #due > 1 then write('zadd', KEYS[4], unpack(due)) end
if #gone > 0 then write('zrem', KEYS[4], unpack(gone)) end
return reply(1)

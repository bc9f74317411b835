-- Frees a plain lock if the holder has it: compare and delete. A count above
-- zero changes nothing, since no count is kept.
--
-- KEYS, ARGV and replies as in release.lua.

if redis.call('get', KEYS[1]) ~= ARGV[1] then
  local answer = redis.call('get', KEYS[3])
  if answer then return tonumber(answer) end
  if ARGV[5] == '1' then
    redis.pcall('set', KEYS[3], '-1', 'PX', ARGV[3])
  end
  return -1
end
if ARGV[2] ~= '0' then return 0 end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], '0')
redis.pcall('set', KEYS[3], '1', 'PX', ARGV[3])
return 1

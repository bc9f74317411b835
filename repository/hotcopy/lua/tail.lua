-- The end of every script about hot copies: it does the work for each copy, and tells of one that was broken off whether
-- it has changed anything. KEYS, ARGV and replies are as in head.lua.

local function answer()
  head.epoch, wrote = nil, false -- the rest is read before it is looked at
  local done, said = pcall(work)
  if done then return said end
  return reply(wrote and -3 or -2, type(said) == 'table' and said.err or tostring(said))
end

-- A function, because what lies outside of any does not see what others have changed after an error, in miniredis.
local function each()
  local answers, key, arg = {}, 0, 0
  while arg < #callArgs do
    local keys, args = tonumber(callArgs[arg + 1]), tonumber(callArgs[arg + 2])
    KEYS, ARGV = {unpack(callKeys, key + 1, key + keys)}, {unpack(callArgs, arg + 3, arg + 2 + args)}
    key, arg = key + keys, arg + 2 + args
    answers[#answers + 1] = answer()
  end
  -- Requests that wait for orders also poll: a message that cannot be published is no failure.
  if channel then redis.pcall('publish', channel, table.concat(told, ' ')) end
  for _, voucher in ipairs(returned) do redis.pcall('publish', 'seckill:v1:voucher-changes', 'returned ' .. voucher) end
  return answers
end

return each()

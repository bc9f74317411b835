-- The end of every script about a copy: it tells whether a script that was broken off has changed anything.
-- KEYS, ARGV and replies are as in head.lua.

local done, answer = pcall(function()
  look()
  return work()
end)
if done then return answer end
local why = type(answer) == 'table' and answer.err or tostring(answer)
if wrote then return {err = 'HALFWAY ' .. why} end
return reply(-2, why)

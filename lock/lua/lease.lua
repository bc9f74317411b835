-- The beginning of the scripts that set leases; it reads none of their KEYS and ARGV.

-- Makes a lease last so long at least, unless that is nil, and no longer than its holder's ever
-- do, if the holder's name says how long that is (see LongestLease): what is longer was made
-- so by a clock that was set back. Replies the ms left.
local function last(lock, holder, lease)
  local left = redis.call('pttl', lock)
  local most = tonumber(string.match(holder, '^%x+%-%x+%-8%x+%-%x+%-%x%x%x%x(%x%x%x%x%x%x%x%x):') or '', 16)
  local wanted = math.max(left, tonumber(lease or left))
  if most and (wanted > most or wanted == -1) then wanted = most end
  if wanted ~= left then redis.call('pexpire', lock, wanted) end
  return wanted
end


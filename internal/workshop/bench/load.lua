-- What wrk sends. (It runs in wrk and not in Redis: there are no KEYS and no ARGV.) Every request is a constant
-- beginning and the next record of a file, which holds a user's token, so that each request has a user of its own.
-- Records have one width, so that a request costs the generator one read and one string.
--
--   wrk … -s load.lua URL -- BEGINNING FILE WIDTH FIRST RECORDS
--
-- Without records (0) the beginning is the whole request. Behind the last record the first one follows.

local head, file, width, first, records, sent

function init(args)
  head, width, first, records, sent = args[1], tonumber(args[3]), tonumber(args[4]), tonumber(args[5]), 0
  if records > 0 then
    file = assert(io.open(args[2], "rb"))
    file:setvbuf("full", 262144)
    file:seek("set", first * width)
  end
end

function request()
  if records == 0 then
    return head
  end
  if sent == records then
    file:seek("set", first * width)
    sent = 0
  end
  sent = sent + 1
  return head .. file:read(width)
end

-- One line of JSON behind wrk's own report. Times are microseconds.
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\n{"answers":%d,"micros":%d,"refused":%d,"broken":%d,"late":%d,"p50":%d,"p99":%d,"p999":%d}\n',
    summary.requests, summary.duration, e.status, e.connect + e.read + e.write, e.timeout,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end

// What the administrator does: opens the sale, and at its end compares what the database holds with what the
// visitors were told.
import http from 'k6/http';
import { fail, sleep } from 'k6';
import { Counter, Gauge } from 'k6/metrics';
import { list, text } from './settings.js';
import { acceptedMinusRows, bases, drawZero, heldMinusLive, parsed } from './visitor.js';

const vouchers = `${bases[0]}/api/v1/admin/vouchers`;
const administrator = {
  headers: { Authorization: `Bearer ${text('ADMIN_TOKEN')}`, 'Content-Type': 'application/json' },
  tags: { name: 'administrator' },
};
const operations = list('OPS_URL');

const usersTwice = new Counter('users_twice');
const unitsMissing = new Counter('units_missing');
const auditBalanced = new Counter('audit_balanced');
const goroutinesLeft = new Gauge('goroutines_left');
const memory = new Gauge('memory_mib');

// open makes the voucher and returns once the sale has begun. Its data goes to every visitor.
export function open(stock) {
  const ready = bases.map((base) => got(http.get(`${base}/readyz`, { tags: { name: 'readyz' } }), 200));
  // By the service's clock, which may differ from this machine's. Date has whole seconds: this is 2 s ahead or more.
  const begin = Date.parse(ready[0].headers.Date) + 3000;
  const voucher = parsed(got(http.post(vouchers, JSON.stringify({
    title: `Load test of ${new Date(begin).toISOString()}`,
    price: 1000,
    face_value: 5000,
    stock,
    begin_at: new Date(begin).toISOString(),
    end_at: new Date(begin + 24 * 3600_000).toISOString(),
  }), administrator), 201)).id;

  const { mode } = parsed(got(http.get(`${vouchers}/${voucher}/audit`, administrator), 200));
  if (__ENV.MODE && mode !== __ENV.MODE) fail(`the service's order mode is ${mode}, not ${__ENV.MODE}`);
  const { goroutines } = processes();
  for (const base of bases) awaitOpening(`${base}/api/v1/vouchers/${voucher}`, begin);
  return { voucher, stock, mode, accepts: mode === 'async' ? 202 : 201, goroutines };
}

// awaitOpening looks until an instance's clock is 100 ms past the beginning: the clock that decides may be another
// one by so much.
function awaitOpening(url, begin) {
  for (let looks = 0; looks < 300; looks += 1) {
    const seen = parsed(got(http.get(url, { tags: { name: 'opening' } }), 200));
    if (seen.phase === 'live' && Date.parse(seen.server_time) >= begin + 100) return;
    drawZero();
    sleep(0.1);
  }
  fail(`${url} has not begun after 30 s`);
}

// close compares the counts once nothing is under way any more.
export function close({ voucher, goroutines }, stock) {
  sleep(2); // two points of the report: the last answers, and the silence after them
  drawZero();
  const { stats, audit } = quiet(`${vouchers}/${voucher}`);
  const rows = Object.values(stats.orders_by_status).reduce((sum, n) => sum + n, 0);
  const live = audit.database.live_orders;
  acceptedMinusRows.add(-rows);
  // An order that is not paid in time expires, and no visitor hears of it.
  heldMinusLive.add(-live - (stats.orders_by_status.expired || 0));
  unitsMissing.add(Math.abs(stock - stats.stock) + Math.abs(stock - audit.database.remaining - live));
  usersTwice.add(repeatedUsers(`${vouchers}/${voucher}`, rows));
  auditBalanced.add(audit.balanced ? 1 : 0);
  if (operations.length > 0) {
    const now = processes();
    goroutinesLeft.add(now.goroutines - goroutines);
    memory.add(now.memory);
  }
  console.info(`voucher ${voucher}: ${JSON.stringify({ rows, ...stats, audit })}`);
}

// quiet waits for the orders that are still on their way to the database: 30 s by the contract, here at most a minute.
function quiet(url) {
  for (let seconds = 0; ; seconds += 1) {
    const stats = parsed(got(http.get(`${url}/stats`, administrator), 200));
    const audit = parsed(got(http.get(`${url}/audit`, administrator), 200));
    if (seconds === 60 || (stats.reserved === 0 && audit.balanced)) return { stats, audit };
    sleep(1);
  }
}

// repeatedUsers is how many rows are of a user who has another one. No visitor cancels an order and buys anew.
function repeatedUsers(url, rows) {
  const [header, ...orders] = got(http.get(`${url}/orders?format=csv`, administrator), 200).body.trim().split('\r\n');
  const column = header.split(',').indexOf('user_id');
  const users = new Set(orders.map((order) => order.split(',')[column]));
  if (orders.length !== rows) fail(`the export has ${orders.length} orders, the statistics ${rows}`);
  return orders.length - users.size;
}

// processes reads what the instances' own metrics say: goroutines of all, and the resident memory of the largest.
function processes() {
  const value = (metrics, name) => {
    const line = metrics.match(new RegExp(`^${name} (\\S+)$`, 'm'));
    return line ? Number(line[1]) : fail(`the instance's metrics lack ${name}`);
  };
  const all = operations.map((base) => got(http.get(`${base}/metrics`, { tags: { name: 'metrics' } }), 200).body);
  return {
    goroutines: all.reduce((sum, metrics) => sum + value(metrics, 'go_goroutines'), 0),
    memory: Math.max(0, ...all.map((metrics) => value(metrics, 'process_resident_memory_bytes') / 2 ** 20)),
  };
}

function got(answer, status) {
  if (answer.status !== status) fail(`${answer.request.method} ${answer.request.url}: ${answer.status} ${answer.body || answer.error}`);
  return answer;
}

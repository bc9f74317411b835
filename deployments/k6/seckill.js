// Load test of one flash sale: an open model, in which buyers arrive at a rate that does not care how fast
// the service answers, each of them another user. It makes its voucher over the administrators' REST, and at
// the end compares three counts: the answers it got, the sales the service counts, and the audit.
//
// `make load` runs it; by hand:
//
//   seckill token --users 1 --role admin > admin.token
//   seckill token --users 60000 > buyers.tokens
//   k6 run -e ADMIN_TOKEN="$(cat admin.token)" -e TOKENS="$PWD/buyers.tokens" deployments/k6/seckill.js
//
// BASE_URL   http://127.0.0.1:8080   one or more instances, comma-separated: buyers alternate between them
// RATE       1000                    arrivals per second
// DURATION   20                      seconds
// STOCK      5000                    units on sale; must be less than RATE * DURATION
// P99_ACCEPTED, P99_SOLD_OUT         thresholds in milliseconds, 500 and 200
// SUMMARY                            a file for all figures as JSON
import exec from 'k6/execution';
import http from 'k6/http';
import { check, fail, sleep } from 'k6';
import { SharedArray } from 'k6/data';
import { Counter, Rate, Trend } from 'k6/metrics';

const bases = (__ENV.BASE_URL || 'http://127.0.0.1:8080').split(',').map((url) => url.trim().replace(/\/+$/, ''));
const rate = number('RATE', 1000);
const duration = number('DURATION', 20);
const stock = number('STOCK', 5000);
// Every this many-th winner buys once more, and must be told of the order that exists.
const repeatEvery = 10;

const tokens = new SharedArray('tokens', () => open(__ENV.TOKENS || missing('TOKENS', 'a file with one token a line')).trim().split('\n'));

if (!__ENV.ADMIN_TOKEN) missing('ADMIN_TOKEN', "an administrator's token");
if (stock >= rate * duration) throw new Error(`STOCK=${stock} is not sold out by RATE * DURATION = ${rate * duration} buyers`);
if (tokens.length < rate * duration + 1) throw new Error(`${tokens.length} tokens are too few for ${rate * duration} buyers`);

// How long a buyer waits, by the answer.
const acceptedTime = new Trend('seckill_accepted_ms', true);
const soldOutTime = new Trend('seckill_sold_out_ms', true);
const repeatTime = new Trend('seckill_already_ordered_ms', true);
// How many heard what.
const accepted = new Counter('seckill_accepted');
const soldOut = new Counter('seckill_sold_out');
const repeated = new Counter('seckill_already_ordered');
const busy = new Counter('seckill_busy'); // 429, 503: honest, but not what this test is set up for
const unexpected = new Counter('seckill_unexpected'); // anything else
const serverErrors = new Counter('seckill_5xx');
// |service's count - stock|, and whether the books balance.
const offBy = new Counter('seckill_off_by');
const balanced = new Rate('seckill_balanced');

export const options = {
  scenarios: {
    buyers: {
      executor: 'constant-arrival-rate',
      rate,
      timeUnit: '1s',
      duration: `${duration}s`,
      // Enough for answers within 200 ms. More are made, up to 1 s, when the service is slower; making one
      // in the middle of the run costs this machine time that it has not, and drops arrivals.
      preAllocatedVUs: Math.max(50, Math.ceil(rate / 5)),
      maxVUs: Math.max(100, rate),
    },
  },
  setupTimeout: '30s',
  teardownTimeout: '90s',
  summaryTrendStats: ['count', 'avg', 'med', 'p(95)', 'p(99)', 'max'],
  thresholds: {
    seckill_accepted: [`count==${stock}`], // exactly: not one more, not one lost
    seckill_off_by: ['count==0'],
    seckill_balanced: ['rate==1'],
    seckill_5xx: ['count==0'],
    seckill_unexpected: ['count==0'],
    seckill_busy: ['count==0'],
    checks: ['rate==1'],
    seckill_accepted_ms: [`p(99)<${number('P99_ACCEPTED', 500)}`],
    seckill_sold_out_ms: [`p(99)<${number('P99_SOLD_OUT', 200)}`],
    // Arrivals that this machine could not make: above one in a hundred it was not this rate that was tested.
    dropped_iterations: [`count<${Math.ceil((rate * duration) / 100)}`],
  },
};

const administrator = { headers: { Authorization: `Bearer ${__ENV.ADMIN_TOKEN}`, 'Content-Type': 'application/json' }, tags: { name: 'admin' } };

export function setup() {
  for (const base of bases) {
    const ready = http.get(`${base}/readyz`, { tags: { name: 'readyz' } });
    if (ready.status !== 200) fail(`${base}/readyz answers ${ready.status}: ${ready.body || ready.error}`);
  }
  const now = Date.now();
  const answer = http.post(
    `${bases[0]}/api/v1/admin/vouchers`,
    JSON.stringify({
      title: `Load test of ${new Date(now).toISOString()}`,
      price: 1000,
      face_value: 5000,
      stock,
      // Running already, whatever the difference between this clock and the service's.
      begin_at: new Date(now - 60_000).toISOString(),
      end_at: new Date(now + 3_600_000).toISOString(),
    }),
    administrator,
  );
  if (answer.status !== 201) fail(`the voucher was not made: ${answer.status} ${answer.body || answer.error}`);
  return { voucher: answer.json('id') };
}

export default function ({ voucher }) {
  const nth = exec.scenario.iterationInTest;
  const buyer = { headers: { Authorization: `Bearer ${tokens[nth % tokens.length]}` }, tags: { name: 'seckill' } };
  const url = `${bases[nth % bases.length]}/api/v1/vouchers/${voucher}/seckill`;
  const answer = http.post(url, null, buyer);
  if (answer.status === 201 || answer.status === 202) {
    win(answer, url, buyer, nth);
  } else if (code(answer) === 'SOLD_OUT') {
    soldOutTime.add(answer.timings.duration);
    soldOut.add(1);
  } else {
    count(answer);
  }
}

function win(answer, url, buyer, nth) {
  acceptedTime.add(answer.timings.duration);
  accepted.add(1);
  const id = answer.json('id');
  check(answer, { 'an accepted order says where it is': () => answer.headers.Location === `/api/v1/orders/${id}` });
  if (nth % repeatEvery !== 0) return;

  const again = http.post(url, null, buyer);
  if (code(again) !== 'ALREADY_ORDERED') {
    count(again);
  } else {
    repeatTime.add(again.timings.duration);
    repeated.add(1);
  }
  check(again, { 'who buys again hears of his own order': () => code(again) === 'ALREADY_ORDERED' && again.json('order_id') === id });
}

// count files an answer that is neither a sale nor "sold out".
function count(answer) {
  if (answer.status >= 500 || answer.status === 0) serverErrors.add(1, { status: String(answer.status) });
  if (answer.status === 429 || answer.status === 503) {
    busy.add(1);
    return;
  }
  unexpected.add(1, { status: String(answer.status) });
  console.warn(`unexpected answer: ${answer.status} ${answer.body || answer.error}`);
}

// code is the machine-readable reason of a problem document.
function code(answer) {
  return answer.status >= 400 && answer.body ? answer.json('code') : '';
}

export function teardown({ voucher }) {
  const { stats, audit } = books(voucher);
  offBy.add(Math.abs(stats.sold - stock) + Math.abs(stats.remaining) + Math.abs(audit.database.live_orders - stock));
  balanced.add(audit.balanced === true);
  console.info(`voucher ${voucher}: ${stats.sold} sold of ${stats.stock}, ${stats.remaining} remain, audit ${audit.balanced ? 'balanced' : 'OFF: ' + JSON.stringify(audit)}`);
}

// books waits until nothing is under way any more (in async mode accepted orders still reach the database
// after the last answer; at most 30 s by the contract) and returns what the service counts.
function books(voucher) {
  const url = `${bases[0]}/api/v1/admin/vouchers/${voucher}`;
  for (let left = 60; ; left -= 1) {
    const stats = http.get(`${url}/stats`, administrator);
    const audit = http.get(`${url}/audit`, administrator);
    if (stats.status !== 200 || audit.status !== 200) fail(`stats answers ${stats.status}, audit ${audit.status}: ${stats.body} ${audit.body}`);
    if (left === 0 || (stats.json('reserved') === 0 && audit.json('balanced'))) return { stats: stats.json(), audit: audit.json() };
    sleep(1);
  }
}

export function handleSummary(data) {
  const value = (metric, stat) => (data.metrics[metric] ? data.metrics[metric].values[stat] || 0 : 0);
  const row = (label, counter, trend) =>
    `  ${label.padEnd(16)}${String(value(counter, 'count')).padStart(8)}${['med', 'p(95)', 'p(99)', 'max'].map((stat) => value(trend, stat).toFixed(1).padStart(10)).join('')}`;
  const failed = Object.entries(data.metrics).flatMap(([name, metric]) =>
    Object.entries(metric.thresholds || {}).filter(([, t]) => !t.ok).map(([rule]) => `  ${name}: ${rule}, was ${JSON.stringify(metric.values)}`));
  const asked = value('seckill_accepted', 'count') + value('seckill_sold_out', 'count') + value('seckill_already_ordered', 'count');
  const verdict = !data.metrics.seckill_balanced ? 'not reached' : value('seckill_balanced', 'rate') === 1 ? 'balanced' : 'NOT balanced';
  const text = [
    '',
    `  ${rate} arrivals/s for ${duration} s on ${stock} units, ${bases.length} instance(s)`,
    '',
    `  answer             count    med ms    p95 ms    p99 ms    max ms`,
    row('accepted', 'seckill_accepted', 'seckill_accepted_ms'),
    row('sold out', 'seckill_sold_out', 'seckill_sold_out_ms'),
    row('already ordered', 'seckill_already_ordered', 'seckill_already_ordered_ms'),
    '',
    `  ${(asked / duration).toFixed(0)} answers/s, ${value('seckill_busy', 'count')} busy, ${value('seckill_5xx', 'count')} server errors, ` +
      `${value('seckill_unexpected', 'count')} unexpected, ${value('dropped_iterations', 'count')} arrivals dropped by the load generator`,
    `  sold against stock: off by ${value('seckill_off_by', 'count')}; audit ${verdict}`,
    '',
    failed.length === 0 ? '  all thresholds met' : `  THRESHOLDS CROSSED\n${failed.join('\n')}`,
    '',
    '',
  ].join('\n');
  const files = { stdout: text };
  if (__ENV.SUMMARY) files[__ENV.SUMMARY] = JSON.stringify(data, null, 2);
  return files;
}

function number(name, fallback) {
  const value = Number(__ENV[name] || fallback);
  if (!Number.isInteger(value) || value <= 0) throw new Error(`${name}=${__ENV[name]} is not a positive whole number`);
  return value;
}

function missing(name, what) {
  throw new Error(`${name} is missing: ${what}; see the head of this script`);
}

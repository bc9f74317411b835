// What a visitor does. Every answer is counted by what it means, with the time that the visitor waited for it.
import http from 'k6/http';
import { check } from 'k6';
import { SharedArray } from 'k6/data';
import { Counter, Trend } from 'k6/metrics';
import { list, text } from './settings.js';

// Visitors go round the instances, and so do the requests of one: what one instance has accepted the others know at
// once. Pairs of visitors share the first instance, because in a shop only every second one buys.
export const bases = list('BASE_URL');
export const tokens = new SharedArray('tokens', () => open(text('TOKENS')).trim().split('\n'));

const counts = [];

// outcome is a count of answers, and their waiting times under the same name.
function outcome(name) {
  const count = new Counter(name);
  const time = new Trend(`${name}_time`, true);
  counts.push(count);
  return (waited, tags) => {
    count.add(1, tags);
    time.add(waited, tags);
  };
}

const accepted = outcome('accepted');
const soldOut = outcome('sold_out');
const alreadyOrdered = outcome('already_ordered');
const browsed = outcome('browsed');
const settled = outcome('settled'); // from the acceptance until the order is unpaid, and so in the database
const canceled = outcome('canceled');
const busy = new Counter('busy'); // 429 and 503: the contract allows them, but nothing here should provoke them
const serverErrors = new Counter('server_errors'); // 5xx and broken connections
const unexpected = new Counter('unexpected');
// What close in sale.js takes the database's counts from: each must come to 0.
export const acceptedMinusRows = new Counter('accepted_minus_rows');
export const heldMinusLive = new Counter('held_minus_live');

// drawZero makes the report draw 0 where nothing is answered, and not a line from the last answer to the next. A rush
// is one point without it, which is invisible.
export function drawZero() {
  for (const count of counts) count.add(0);
}

export function newVisitor(nth, part) {
  return { nth, part: { part }, authorization: `Bearer ${tokens[nth % tokens.length]}`, requests: 0, order: null };
}

function request(visitor, method, path, name) {
  const base = bases[(Math.floor(visitor.nth / 2) + visitor.requests) % bases.length];
  visitor.requests += 1;
  // The name keeps k6 from counting every order's URL apart.
  const answer = http.request(method, `${base}/api/v1${path}`, null, { headers: { Authorization: visitor.authorization }, tags: { name } });
  return { answer, said: parsed(answer), waited: answer.timings.duration };
}

// parsed is the answer's document, and empty when it is none: what stands before the service may answer in HTML.
export function parsed(answer) {
  try {
    return answer.json() || {};
  } catch (error) {
    return {};
  }
}

let printed = false;

// surprise counts an answer that the visitor should not have got. Each VU prints its first.
export function surprise({ answer }) {
  const status = { status: String(answer.status) };
  if (answer.status >= 500 || answer.status === 0) serverErrors.add(1, status);
  if (answer.status === 429 || answer.status === 503) busy.add(1, status);
  else unexpected.add(1, status);
  if (!printed) console.warn(`${answer.request.method} ${answer.request.url}: ${answer.status} ${answer.body || answer.error}`);
  printed = true;
}

// browse looks at what is on sale, and at the voucher.
export function browse({ voucher, stock }, visitor) {
  const on = request(visitor, 'GET', '/vouchers?phase=live&limit=10', 'list');
  const one = request(visitor, 'GET', `/vouchers/${voucher}`, 'look');
  for (const page of [on, one]) {
    if (page.answer.status === 200) browsed(page.waited, visitor.part);
    else surprise(page);
  }
  check(one.said, { 'the voucher has a whole number of units left': ({ remaining }) => Number.isInteger(remaining) && remaining >= 0 && remaining <= stock });
}

// buy is true when the order was accepted.
export function buy({ voucher, accepts }, visitor) {
  const got = request(visitor, 'POST', `/vouchers/${voucher}/seckill`, 'buy');
  if (got.answer.status === accepts) {
    accepted(got.waited, visitor.part);
    acceptedMinusRows.add(1);
    heldMinusLive.add(1);
    visitor.order = got.said;
    visitor.bought = Date.now();
    return check(got, {
      'an accepted order is of this voucher': ({ said }) => said.voucher_id === voucher && Boolean(said.id),
      'an accepted order says where it is': ({ answer, said }) => answer.headers.Location === `/api/v1/orders/${said.id}`,
    });
  }
  if (got.answer.status === 409 && got.said.code === 'SOLD_OUT') soldOut(got.waited, visitor.part);
  else surprise(got);
  return false;
}

// buyAgain must hear of the order that exists.
export function buyAgain({ voucher }, visitor) {
  const got = request(visitor, 'POST', `/vouchers/${voucher}/seckill`, 'buy');
  if (got.answer.status === 409 && got.said.code === 'ALREADY_ORDERED') alreadyOrdered(got.waited, visitor.part);
  else surprise(got);
  check(got.said, { 'who buys again hears of the first order': ({ order_id: id }) => id === visitor.order.id });
}

// awaitSettled polls until the order is no longer processing: at most 30 s by the contract.
export function awaitSettled(visitor) {
  let got;
  for (let polls = 0; polls < 3; polls += 1) {
    got = request(visitor, 'GET', `/orders/${visitor.order.id}?wait=10s`, 'poll');
    if (got.answer.status !== 200) {
      surprise(got);
      return false;
    }
    if (got.said.status !== 'processing') {
      settled(Date.now() - visitor.bought, visitor.part);
      break;
    }
  }
  return check(got.said, { 'an accepted order can be paid within 30 s': ({ id, status }) => id === visitor.order.id && status === 'unpaid' });
}

// cancel asks twice: the second time nothing changes.
export function cancel(visitor) {
  const path = `/orders/${visitor.order.id}/cancel`;
  const first = request(visitor, 'POST', path, 'cancel');
  if (first.answer.status !== 200) {
    surprise(first);
    return;
  }
  canceled(first.waited, visitor.part);
  heldMinusLive.add(-1);
  const second = request(visitor, 'POST', path, 'cancel');
  if (second.answer.status !== 200) surprise(second);
  check([first.said, second.said], { 'a canceled order stays canceled': (orders) => orders.every(({ status }) => status === 'canceled') });
}

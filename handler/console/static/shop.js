// The buyer's side of a sale, over the public API only. The token is kept as long as a tab of the shop is open: a reload, another tab
// and the way back from the payment find it there.
'use strict';

const api = '/api/v1';
const find = (id) => document.getElementById(id);
const word = (key) => document.querySelector(`#words [data-word="${CSS.escape(key)}"]`)?.textContent ?? key;
const fill = (key, ...values) => values.reduce((text, value, n) => text.replace(`{${n}}`, value), word(key));
const pause = (milliseconds) => new Promise((done) => { setTimeout(done, milliseconds); });
const language = document.documentElement.lang;
const only = find('vouchers').dataset.only ?? ''; // the one voucher of this page; empty: it is the window with all of them
const keep = sessionStorage;
let token = keep.getItem('token') ?? '';
let vouchers = new Map(JSON.parse(find('vouchers').dataset.known).map((voucher) => [voucher.id, voucher]));
let orders = new Map(); // mine, by id, the newest first
const places = new Map(); // mine on waitlists, by id of the voucher
const buying = new Set(); // ids of vouchers that are being bought
const entries = new Map(); // mine in draws, by the id of the voucher
const cooling = new Map(JSON.parse(keep.getItem('cooling') ?? '[]')); // until when I have to wait after an order that ended unpaid, by the id of the voucher
let groups = []; // those that I am in
let lost = false; // the server cannot be reached

// The server's clock is this page's, which is never set, and a difference between these two. That the server made an answer between
// the request and its arrival bounds the difference from both sides.
const clock = { least: -Infinity, most: Infinity };
function heard(made, sent, received) {
  const [least, most] = [made - received, made - sent];
  const stoodStill = least > clock.most || most < clock.least; // this page's clock, in a sleep
  clock.least = stoodStill ? least : Math.max(least, clock.least);
  clock.most = stoodStill ? most : Math.min(most, clock.most);
}
const opened = performance.getEntriesByType('navigation')[0];
heard(Date.parse(document.body.dataset.now), opened?.requestStart ?? 0, opened?.responseStart || performance.now());
const now = () => (clock.least + clock.most) / 2 + performance.now();
const latest = () => clock.most + performance.now(); // the server's clock is not ahead of this

// call asks the API. Its answer is {status, body}; a request that was not answered has the status 0. What is asked openly is the same for
// everybody, and may come from a cache.
async function call(method, path, body, openly = false) {
  const headers = { Accept: 'application/json', 'Accept-Language': language };
  if (token && !openly) headers.Authorization = `Bearer ${token}`;
  if (body) headers['Content-Type'] = 'application/json';
  const sent = performance.now();
  try {
    const response = await fetch(api + path, { method, headers, body: body && JSON.stringify(body), credentials: 'omit', cache: openly ? 'default' : 'no-store' });
    const received = performance.now();
    const date = Date.parse(response.headers.get('Date')); // of whole seconds
    if (!openly && date) heard(date, sent - 1000, received);
    const text = await response.text();
    const wait = Number(response.headers.get('Retry-After') ?? 1);
    if (response.status === 401 && token && !path.startsWith('/auth/')) leave();
    const answer = { status: response.status, wait, body: text ? JSON.parse(text) : {}, sent, received };
    reached(true);
    return answer;
  } catch {
    reached(false);
    return { status: 0, wait: 1, body: { detail: word('lost') }, sent, received: sent };
  }
}

// reached says at once that the server is away, and turns off what would do nothing.
function reached(well) {
  if (lost === !well) return;
  lost = !well;
  find('lost').hidden = well;
  show();
}
addEventListener('offline', () => reached(false));
addEventListener('online', () => { wake(); });

// say puts a text onto the card of a voucher or an order, and at the top where there is none.
function say(text, id = '') {
  const place = document.querySelector(`[data-id="${CSS.escape(id)}"] [data-field="refusal"]`) ?? find('message');
  if (place.textContent !== text) place.textContent = text;
  place.hidden = !text;
}

// refuse says in words why a call failed: in English as the API has it, and otherwise in this page's words for that, or for
// its code.
function refuse(answer, id) {
  if (answer.body.retry_at) {
    cooling.set(id, answer.body.retry_at);
    keep.setItem('cooling', JSON.stringify([...cooling]));
  }
  const fields = (answer.body.errors ?? []).map((field) => field.message);
  const { detail, code } = answer.body;
  const here = code === undefined || language === 'en' || word(detail) !== detail ? word(detail) : word(code);
  say(fields.length > 0 ? fields.join(' · ') : here, id);
}

const money = (minor, currency) => {
  const format = new Intl.NumberFormat(language, { style: 'currency', currency });
  return format.format(minor / 10 ** format.resolvedOptions().maximumFractionDigits);
};

// left is the time until an instant as people say it: days and hours, hours and minutes, and a clock in the last hour.
function left(at) {
  const seconds = Math.max(0, Math.floor((Date.parse(at) - now()) / 1000));
  const unit = (value, name) => new Intl.NumberFormat(language, { style: 'unit', unit: name, unitDisplay: 'long' }).format(value);
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days > 0) return `${unit(days, 'day')} ${unit(hours, 'hour')}`;
  if (hours > 0) return `${unit(hours, 'hour')} ${unit(minutes, 'minute')}`;
  return `${String(minutes).padStart(2, '0')}:${String(seconds % 60).padStart(2, '0')}`;
}

// lasts is how long a duration of the API is, such as 336h0m0s, in ms.
const lasts = (text = '') => [...text.matchAll(/([\d.]+)(ms|h|m|s)/g)].reduce((sum, [, n, unit]) => sum + n * { h: 3600000, m: 60000, s: 1000, ms: 1 }[unit], 0);

// when is an instant, or from one to another, on the clock of the sale's zone, and beside it on the visitor's where that differs.
const formats = new Map(); // by zone, and whether with the year: one takes long to make
function spell(zone, year, from, to) {
  const key = `${zone} ${year}`;
  if (!formats.has(key)) {
    const parts = { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', ...(year && { year: 'numeric' }), timeZone: zone };
    formats.set(key, new Intl.DateTimeFormat(language === 'en' ? 'en-GB' : language, parts));
  }
  const [first, last] = [from, to].map((at) => formats.get(key).format(new Date(at || 0)));
  const sameDay = first.slice(0, -5) === last.slice(0, -5); // behind it are hours and minutes
  return first === last ? first : sameDay ? `${first}–${last.slice(-5)}` : `${first} – ${last}`;
}
function when(zone, from, to = from) {
  const own = spell(undefined, true, from, to);
  if (!zone) return own;
  const there = spell(zone, true, from, to);
  return there === own ? there : `${there} ${zone} (${fill('your time', spell(undefined, false, from, to))})`;
}
const list = (names) => new Intl.ListFormat(language).format(names);

const field = (card, name) => card.querySelector(`[data-field="${name}"]`);
function set(card, name, text) {
  const place = field(card, name);
  if (place.textContent !== text) place.textContent = text;
}

// acts are what the large button of a voucher can do.
const acts = { orders: () => view('orders'), 'sign-in': () => view('sign-in'), buy, wait };

// mine is what is known of the visitor, as offer wants it.
const mine = (id) => ({
  signedIn: Boolean(token), groups, busy: buying.has(id), entry: entries.get(id), place: places.get(id), coolsUntil: cooling.get(id),
  order: [...orders.values()].find((order) => order.voucher_id === id && ['processing', 'unpaid', 'paid', 'redeemed'].includes(order.status)),
});

// begins is when the visitor may buy: groups may begin earlier than the others.
const begins = ({ begin_at: at, early }) => Date.parse(early?.groups.some((group) => groups.includes(group)) ? early.begin_at : at);

// seen is a voucher as it is now: its beginning and its end are known beforehand, and need no answer.
function seen(voucher) {
  let { phase } = voucher;
  if (phase === 'upcoming' && latest() >= begins(voucher)) phase = 'live';
  if (phase !== 'ended' && now() >= Date.parse(voucher.end_at)) phase = 'ended';
  return { ...voucher, phase, eligible: voucher.groups?.some((group) => groups.includes(group)) ?? true };
}

// inOrder puts first what is on sale and ends soonest, then what begins soonest, then what has ended.
const rank = ({ phase, begin_at: from, end_at: to }) => (phase === 'ended' ? [2, -Date.parse(to)] : phase === 'upcoming' ? [1, Date.parse(from)] : [0, Date.parse(to)]);
function inOrder(one, other) {
  const [[kind, at], [otherKind, otherAt]] = [rank(one), rank(other)];
  return kind - otherKind || at - otherAt || (one.id < other.id ? -1 : 1);
}

// show draws the vouchers. A card stays the same element, so that the keyboard's focus stays where it is.
let alarm = 0;
function show() {
  const all = [...vouchers.values()].map(seen).sort(inOrder);
  find('none').hidden = all.length > 0;
  const old = new Map([...document.querySelectorAll('.offers.sale > [data-id]')].map((card) => [card.dataset.id, card]));
  const last = new Map(); // card of each part
  for (const voucher of all) {
    const part = find(voucher.phase === 'ended' && !only ? 'ended' : 'vouchers');
    const card = old.get(voucher.id) ?? make('voucher', voucher.id, part);
    old.delete(voucher.id);
    const before = last.get(part) ?? null;
    if (card.parentElement !== part || card.previousElementSibling !== before) part.insertBefore(card, before ? before.nextElementSibling : part.firstElementChild);
    last.set(part, card);
    drawVoucher(card, voucher);
  }
  for (const card of old.values()) card.remove();
  find('past').hidden = Boolean(only) || !(find('ended').children.length > 0 || more.ended);
  const wait = Math.min(...all.filter(({ phase }) => phase === 'upcoming').map((voucher) => begins(voucher) - latest()), 1e9);
  clearTimeout(alarm);
  alarm = setTimeout(show, Math.max(wait, 1)); // at the beginning itself: no request stands between it and the button
}

function drawVoucher(card, voucher) {
  set(card, 'title', voucher.title);
  field(card, 'title').href = `/shop/${voucher.id}`;
  set(card, 'description', voucher.description ?? '');
  field(card, 'description').hidden = !voucher.description;
  set(card, 'phase', word(voucher.phase));
  field(card, 'phase').className = `badge ${voucher.phase}`;
  set(card, 'price', money(voucher.price, voucher.currency));
  set(card, 'face_value', money(voucher.face_value, voucher.currency));
  set(card, 'left', `${voucher.remaining} / ${voucher.stock}`);
  field(card, 'bar').max = voucher.stock;
  field(card, 'bar').value = voucher.remaining;
  set(card, 'countdown', ['upcoming', 'ended'].includes(voucher.phase) ? '' : fill(voucher.allocation === 'draw' ? 'drawn at' : 'ends', left(voucher.end_at)));
  set(card, 'when', when(voucher.time_zone, voucher.begin_at, voucher.end_at));
  const { says, does, why } = offer(voucher, mine(voucher.id));
  const button = field(card, 'buy');
  set(card, 'buy', says);
  const leave = field(card, 'leave');
  leave.hidden = does !== 'give up'; // its own button: a second click on the first one loses no place
  leave.onclick = () => giveUp(voucher.id);
  button.disabled = !acts[does] || lost && does !== 'orders';
  button.onclick = () => acts[does](voucher.id);
  set(card, 'why', why);
  field(card, 'again').hidden = voucher.phase !== 'ended' || !voucher.public_report;
  field(card, 'again').firstElementChild.href = `/shop/${voucher.id}/replay`;
}

function make(template, id, into) {
  const card = find(template).content.firstElementChild.cloneNode(true);
  card.dataset.id = id;
  into.append(card);
  return card;
}

// draw shows my orders.
function draw() {
  find('no-orders').hidden = orders.size > 0;
  const old = new Map([...find('bought').children].map((card) => [card.dataset.id, card]));
  let place = find('bought').firstElementChild;
  for (const order of orders.values()) {
    const card = old.get(order.id) ?? make('order', order.id, find('bought'));
    old.delete(order.id);
    if (card === place) place = place.nextElementSibling;
    else find('bought').insertBefore(card, place); // a new one: those that are there stay where the keyboard is
    set(card, 'title', vouchers.get(order.voucher_id)?.title ?? order.title ?? '');
    set(card, 'status', word(order.status === 'processing' ? 'in the queue' : order.status));
    field(card, 'status').className = `badge ${order.status}`;
    set(card, 'price', money(order.price, order.currency));
    set(card, 'clock', order.status === 'unpaid' && order.expires_at ? fill('pay in', left(order.expires_at)) : '');
    const { time_zone: zone, withdrawal } = vouchers.get(order.voucher_id) ?? {};
    let says = order.reason ? word(order.reason) : '';
    if (order.status === 'processing') says = fill('queued', Math.max(0, Math.floor((now() - Date.parse(order.created_at)) / 1000)));
    if (order.status === 'paid') {
      says = [word('at the till'), order.valid_from && fill('usable from', when(zone, order.valid_from)), order.valid_until && fill('usable until', when(zone, order.valid_until))].filter(Boolean).join(' ');
    }
    if (order.status === 'refunded' && order.paid_at && !says) says = fill('receipt', when(zone, order.closed_at), money(order.price, order.currency), order.id);
    set(card, 'says', says);
    field(card, 'ticket').hidden = !order.code || order.status !== 'paid';
    if (order.code && field(card, 'code').textContent !== order.code) {
      set(card, 'code', order.code);
      picture(field(card, 'qr'), order.code);
    }
    for (const button of card.querySelectorAll('[data-do]')) {
      button.hidden = order.status !== (button.dataset.do === 'withdraw' ? 'paid' : 'unpaid');
      button.onclick = () => ({ pay, cancel, withdraw })[button.dataset.do](order.id);
    }
    const until = Date.parse(order.paid_at) + lasts(withdrawal);
    field(card, 'back').hidden = order.status !== 'paid' || !(now() < until);
    set(card, 'until', fill('back until', when(zone, until)));
  }
  for (const card of old.values()) card.remove();
}

// picture draws a QR code.
function picture(svg, text) {
  const code = qrcode(0, 'M');
  code.addData(text);
  code.make();
  const size = code.getModuleCount();
  let path = '';
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column < size; column += 1) if (code.isDark(row, column)) path += `M${column} ${row}h1v1h-1z`;
  }
  svg.setAttribute('viewBox', `-4 -4 ${size + 8} ${size + 8}`);
  const drawn = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  drawn.setAttribute('d', path);
  svg.replaceChildren(drawn);
}

// took takes vouchers as they were answered, and what the answer tells of the server's clock.
function took(answer, items) {
  for (const voucher of items) {
    vouchers.set(voucher.id, voucher);
    const least = Date.parse(voucher.server_time) - answer.received; // a cache may have kept it for a second
    if (least > clock.most) clock.most = least + 2000; // this page's clock stood still
    clock.least = Math.max(clock.least, least);
  }
}

// look reads what is on sale and what will be, as everybody else reads it. In between only what is live is read: what leaves that list is
// asked for by itself. It tells whether anything has changed.
const more = only ? {} : { ended: 'first' }; // where each list goes on behind what is shown; empty: it does not
const state = () => JSON.stringify([...vouchers.values()].map(({ id, phase, remaining }) => [id, phase, remaining]));
let looks = 0;
async function look(all) {
  const before = state();
  if (only) await lookAt(only);
  looks += 1;
  for (const phase of only ? [] : all || looks % 5 === 0 ? ['live', 'sold_out', 'upcoming', 'paused'] : ['live']) {
    const answer = await call('GET', `/vouchers?phase=${phase}&limit=100`, undefined, true);
    if (answer.status !== 200) break;
    const gone = [...vouchers.values()].filter((voucher) => voucher.phase === phase && !answer.body.items.some(({ id }) => id === voucher.id));
    took(answer, answer.body.items);
    more[phase] ??= answer.body.next_cursor ?? ''; // later looks read the same beginning again
    for (const { id } of answer.body.next_cursor ? [] : gone) await lookAt(id);
  }
  show();
  return before !== state();
}

async function lookAt(id) {
  const answer = await call('GET', `/vouchers/${id}`, undefined, true);
  if (answer.status === 200) took(answer, [answer.body]);
  if (answer.status === 404) vouchers.delete(id);
}

// further shows more of the lists that go on.
async function further() {
  for (const phase of Object.keys(more)) {
    if (!more[phase] || phase === 'ended' && !find('past').open) continue;
    const cursor = more[phase] === 'first' ? '' : `&cursor=${encodeURIComponent(more[phase])}`;
    const answer = await call('GET', `/vouchers?phase=${phase}&limit=20${cursor}`, undefined, true);
    if (answer.status !== 200) continue;
    took(answer, answer.body.items);
    more[phase] = answer.body.next_cursor ?? '';
  }
  show();
}
find('past').addEventListener('toggle', further);
new IntersectionObserver((ends) => { if (ends.some((end) => end.isIntersecting)) further(); }).observe(find('further'));

// Looks cost a crowd of tabs nothing before a sale: they are minutes apart, and each tab looks once at a random instant in the last minute.
// While units are left looks are seconds apart; where nothing changes they become rarer.
const between = (from, to) => from + Math.random() * (to - from);
let rests = 2000; // between two looks at a sale, in ms
let looked = -Infinity;
let timer = 0;
function plan(changed) {
  const all = [...vouchers.values()].map(seen);
  const live = all.some(({ phase }) => phase === 'live');
  rests = changed ? 2000 : Math.min(rests * 1.5, live ? 15000 : 300000);
  const soon = Math.min(...all.filter(({ phase }) => phase === 'upcoming').map((voucher) => begins(voucher) - now()));
  let wait = live ? between(rests * 0.75, rests * 1.25) : between(240000, 480000);
  if (!live && all.some(({ phase }) => phase === 'sold_out')) wait = Math.min(wait, between(rests * 0.75, rests * 1.25));
  if (soon > 60000 && soon < Infinity) wait = Math.min(wait, between(soon - 60000, soon - 5000)); // the look before its beginning
  else if (!live && soon < Infinity) wait = Math.min(wait, soon + between(500, 3000)); // and the one behind it
  if (lost) wait = between(1000, 3000);
  clearTimeout(timer);
  timer = setTimeout(wake, Math.max(wait, 0));
}

// wake looks, if anybody sees it.
async function wake() {
  clearTimeout(timer);
  if (document.hidden) return;
  looked = performance.now();
  const changed = await look(![...vouchers.values()].some((voucher) => seen(voucher).phase === 'live'));
  const next = [...vouchers.values()].find((voucher) => seen(voucher).phase === 'upcoming' && begins(voucher) - now() < 60000);
  if (token && next) { // an answer for this visitor alone is as old as it is
    const exact = await call('GET', `/vouchers/${next.id}`);
    if (exact.status === 200) heard(Date.parse(exact.body.server_time), exact.sent, exact.received);
  }
  plan(changed);
}
function back() {
  if (document.hidden || performance.now() - looked < 1000) return;
  wake();
  lookAtMe();
}
document.addEventListener('visibilitychange', back);
addEventListener('focus', back);
addEventListener('pageshow', (event) => { if (event.persisted) back(); });

// lookAtMe reads what is mine.
async function lookAtMe() {
  await lookAtOrders();
  await lookAtPlaces();
  show();
}

async function lookAtOrders() {
  if (!token) return;
  const me = await call('GET', '/auth/me');
  if (me.status === 200 && token) groups = me.body.groups ?? [];
  for (const voucher of vouchers.values()) {
    const entry = entries.get(voucher.id);
    if (voucher.allocation !== 'draw' || seen(voucher).phase === 'upcoming' || entry?.status === 'won' || entry?.status === 'lost') continue;
    const mine = await call('GET', `/vouchers/${voucher.id}/entry`);
    if (mine.status === 200 && token) entries.set(voucher.id, mine.body);
  }
  const answer = await call('GET', `/orders?limit=50`);
  if (answer.status !== 200 || !token) return;
  const found = new Map(answer.body.items.map((order) => [order.id, order]));
  for (const [id, order] of orders) if (order.status === 'processing' && !found.has(id)) found.set(id, order); // it is in no list yet
  orders = new Map([...found].sort(([, a], [, b]) => Date.parse(b.created_at) - Date.parse(a.created_at)));
  for (const order of orders.values()) {
    if (vouchers.has(order.voucher_id) || order.title) continue;
    await lookAt(order.voucher_id);
    order.title = vouchers.get(order.voucher_id)?.title ?? order.voucher_id;
  }
  draw();
}

// buy repeats a request that was not decided, as every client should: the answer is the order, or that there is one. The first request
// leaves before anything is drawn.
async function buy(voucherID) {
  const ask = () => call('POST', `/vouchers/${voucherID}/seckill`);
  let asked = ask();
  keep.setItem('pressed', JSON.stringify({ ...JSON.parse(keep.getItem('pressed') ?? '{}'), [voucherID]: now() })); // for the sale again: no server knows it
  buying.add(voucherID);
  say('', voucherID);
  show();
  try {
    for (let tries = 0; tries < 20; tries += 1) {
      const answer = await asked;
      let wait = answer.wait * 1000;
      if (answer.body.leaf) return entries.set(voucherID, answer.body);
      if (answer.status === 201 || answer.status === 202) return await follow(answer.body);
      if (answer.body.code === 'ALREADY_ORDERED') return await follow({ id: answer.body.order_id });
      if (answer.body.code === 'NOT_STARTED') {
        const begin = Date.parse(answer.body.begin_at);
        clock.most = Math.max(clock.least, Math.min(clock.most, begin - answer.sent)); // it was not later than that
        wait = Math.max(begin - now(), 50);
        if (wait > 5000) return refuse(answer, voucherID);
      } else if (answer.status !== 0 && answer.status !== 429 && answer.status < 500) return refuse(answer, voucherID);
      else say(word('waiting'), voucherID);
      await pause(wait);
      asked = ask();
    }
    return say(word('lost'), voucherID);
  } finally {
    buying.delete(voucherID);
    wake();
  }
}

// wait takes a place on a waitlist, giveUp gives it back.
async function wait(voucherID) {
  say('', voucherID);
  const answer = await call('POST', `/vouchers/${voucherID}/waitlist`);
  if (answer.status !== 201 && answer.status !== 200) return refuse(answer, voucherID);
  places.set(voucherID, answer.body);
  return show();
}

async function giveUp(voucherID) {
  say('', voucherID);
  const answer = await call('DELETE', `/vouchers/${voucherID}/waitlist`);
  if (answer.status !== 204 && answer.status !== 404) return refuse(answer, voucherID);
  places.delete(voucherID);
  entries.delete(voucherID); // it is looked at again
  return show();
}

async function lookAtPlaces() {
  for (const voucher of vouchers.values()) {
    if (!token || !voucher.waitlist || voucher.allocation === 'draw' || seen(voucher).phase === 'upcoming') continue;
    const answer = await call('GET', `/vouchers/${voucher.id}/waitlist`);
    if (answer.status === 200) places.set(voucher.id, answer.body);
    if (answer.status === 404) places.delete(voucher.id);
  }
}

// follow leads to an order, and waits until it is made.
async function follow(order) {
  say('');
  say('', order.voucher_id);
  if (order.voucher_id) orders = new Map([[order.id, order], ...orders]);
  view('orders');
  draw();
  for (let tries = 0; tries < 60 && token; tries += 1) {
    const answer = await call('GET', `/orders/${order.id}?wait=10s`);
    if (answer.status === 200) {
      orders.set(order.id, answer.body);
      draw();
      if (answer.body.status !== 'processing') break;
    } else await pause(answer.wait * 1000);
  }
  await lookAtOrders();
  find('bought').querySelector('[data-do="pay"]:not([hidden])')?.focus();
}

async function pay(id) {
  say('', id);
  const answer = await call('POST', `/orders/${id}/pay`);
  if (answer.status !== 202) return refuse(answer, id);
  const page = answer.body.payment_url ?? '';
  if (!/^https?:\/\//.test(page)) return lookAtOrders();
  const link = new URL(page);
  // The simulator beside this server leads back here; a provider is told where by the server.
  if (link.hostname === location.hostname && link.pathname.startsWith('/pay/')) link.searchParams.set('back', `${location.origin}${location.pathname}#orders`);
  return location.assign(link);
}

async function cancel(id) {
  say('', id);
  const answer = await call('POST', `/orders/${id}/cancel`);
  if (answer.status !== 200) return refuse(answer, id);
  await lookAtOrders();
  return wake();
}

async function withdraw(id) {
  say('', id);
  const answer = await call('POST', `/orders/${id}/withdraw`);
  if (answer.status !== 202 && answer.status !== 200) return refuse(answer, id);
  await lookAtOrders();
  return wake();
}

// view shows one of the page's parts.
function view(name) {
  const shown = ['sale', 'orders', 'sign-in'].includes(name) ? name : 'sale';
  const part = shown === 'orders' && !token ? 'sign-in' : shown;
  for (const section of ['sale', 'orders', 'sign-in']) find(`part-${section}`).hidden = section !== part;
  for (const link of document.querySelectorAll('[data-view]')) {
    if (link.dataset.view === part) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
    if (link.dataset.view === 'sign-in') link.hidden = Boolean(token);
  }
  if (location.hash !== `#${part}`) history.replaceState(null, '', `#${part}`);
  if (part === 'sign-in') find('username').focus();
}
addEventListener('hashchange', () => view(location.hash.slice(1)));

function enter(name) {
  find('buyer').hidden = !token;
  find('buyer').querySelector('b').textContent = name;
}

function leave() {
  token = '';
  orders = new Map();
  groups = [];
  for (const own of [entries, places, cooling]) own.clear();
  keep.clear();
  enter('');
  draw();
  show();
  view('sale');
}

// signIn is what follows a token, of this tab or of another one.
async function signIn(given, name) {
  token = given;
  keep.setItem('token', token);
  keep.setItem('name', name);
  enter(name);
  await lookAtMe();
}

// Tabs of one browser are one visitor. A new tab asks the others; the token leaves these tabs for no storage that outlasts them.
const tabs = new BroadcastChannel('shop');
tabs.onmessage = ({ data }) => {
  if (data.asks && token) tabs.postMessage({ token, name: keep.getItem('name') });
  if (data.left && token) leave();
  if (data.token && !token) signIn(data.token, data.name);
};
if (!token) tabs.postMessage({ asks: true });
find('leave').addEventListener('click', () => {
  leave();
  tabs.postMessage({ left: true });
});

find('account').addEventListener('submit', async (event) => {
  event.preventDefault();
  say('');
  const form = event.currentTarget;
  const who = { username: form.elements.username.value, password: form.elements.password.value };
  if (event.submitter?.value === 'register') {
    const made = await call('POST', '/auth/register', who);
    if (made.status !== 201) return refuse(made);
  }
  const answer = await call('POST', '/auth/login', who);
  if (answer.status !== 200) return refuse(answer);
  form.elements.password.value = '';
  await signIn(answer.body.access_token, who.username);
  tabs.postMessage({ token, name: who.username });
  view('sale');
  return undefined;
});

enter(keep.getItem('name') ?? '');
view(location.hash.slice(1) || 'sale');
show();
lookAtMe();
looked = performance.now();
plan(true);

// Once a second the clocks move. A gap is a sleep, in which this page's own clock may have stood still.
let ticked = Date.now();
setInterval(() => {
  const slept = Date.now() - ticked > 5000;
  ticked = Date.now();
  if (slept) back();
  show();
  draw();
}, 1000);

// What is mine changes by itself only where somebody waits: for a payment, a unit or a draw.
async function follows() {
  const waits = [...orders.values()].some(({ status }) => status === 'unpaid' || status === 'processing') || places.size > 0
    || [...entries].some(([id, { status }]) => status === 'waiting' || status === 'entered' && now() >= Date.parse(vouchers.get(id)?.end_at));
  if (token && waits && !document.hidden) await lookAtMe();
  setTimeout(follows, between(3000, 9000));
}
follows();

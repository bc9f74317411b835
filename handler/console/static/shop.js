// The buyer's side of a sale, over the public API only. The token is kept as long as the tab: a reload and the way back from
// the payment find it there.
'use strict';

const api = '/api/v1';
const find = (id) => document.getElementById(id);
const word = (key) => document.querySelector(`#words [data-word="${CSS.escape(key)}"]`)?.textContent ?? key;
const fill = (key, ...values) => values.reduce((text, value, n) => text.replace(`{${n}}`, value), word(key));
const pause = (milliseconds) => new Promise((done) => { setTimeout(done, milliseconds); });
const language = document.documentElement.lang;
let token = sessionStorage.getItem('token') ?? '';
let vouchers = new Map();
let orders = new Map(); // mine, by id, the newest first
const places = new Map(); // mine on waitlists, by id of the voucher
const buying = new Set(); // ids of vouchers that are being bought
const entries = new Map(); // mine in draws, by the id of the voucher
const cooling = new Map(); // until when I have to wait after an order that ended unpaid, by the id of the voucher
let groups = []; // those that I am in
const now = () => serverNow(); // of console.js: the server's clock

// call asks the API. Its answer is {status, body}; a request that was not answered has the status 0.
async function call(method, path, body) {
  const headers = { Accept: 'application/json', 'Accept-Language': language };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers['Content-Type'] = 'application/json';
  try {
    const response = await fetch(api + path, { method, headers, body: body && JSON.stringify(body), credentials: 'omit', cache: 'no-store' });
    const text = await response.text();
    const wait = Number(response.headers.get('Retry-After') ?? 1);
    if (response.status === 401 && token && !path.startsWith('/auth/')) leave();
    return { status: response.status, wait, body: text ? JSON.parse(text) : {} };
  } catch {
    return { status: 0, wait: 1, body: { detail: word('lost') } };
  }
}

function say(text) {
  if (find('message').textContent !== text) find('message').textContent = text;
  find('message').hidden = !text;
}

// refuse says in words why a call failed: in English as the API has it, and otherwise in this page's words for that, or for
// its code.
function refuse(answer, voucherID) {
  if (answer.body.retry_at) cooling.set(voucherID, answer.body.retry_at);
  const fields = (answer.body.errors ?? []).map((field) => field.message);
  const { detail, code } = answer.body;
  const here = code === undefined || language === 'en' || word(detail) !== detail ? word(detail) : word(code);
  say(fields.length > 0 ? fields.join(' · ') : here);
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

// when is an instant on the visitor's clock, and list names one after the other.
const when = (at) => new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'short' }).format(Date.parse(at));
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

// show draws the vouchers. A card stays the same element, so that the keyboard's focus stays where it is.
function show() {
  find('none').hidden = vouchers.size > 0;
  const old = new Map([...find('vouchers').children].map((card) => [card.dataset.id, card]));
  for (const voucher of vouchers.values()) {
    const card = old.get(voucher.id) ?? make('voucher', voucher.id, find('vouchers'));
    old.delete(voucher.id);
    set(card, 'title', voucher.title);
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
    const { says, does, why } = offer(voucher, mine(voucher.id));
    const button = field(card, 'buy');
    set(card, 'buy', says);
    const leave = field(card, 'leave');
    leave.hidden = does !== 'give up'; // its own button: a second click on the first one loses no place
    leave.onclick = () => giveUp(voucher.id);
    button.disabled = !acts[does];
    button.onclick = () => acts[does](voucher.id);
    set(card, 'why', why);
  }
  for (const card of old.values()) card.remove();
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
    let says = order.reason ? word(order.reason) : '';
    if (order.status === 'processing') says = fill('queued', Math.max(0, Math.floor((now() - Date.parse(order.created_at)) / 1000)));
    if (order.status === 'paid') says = word('at the till');
    set(card, 'says', says);
    field(card, 'ticket').hidden = !order.code || order.status !== 'paid';
    if (order.code && field(card, 'code').textContent !== order.code) {
      set(card, 'code', order.code);
      picture(field(card, 'qr'), order.code);
    }
    for (const button of card.querySelectorAll('[data-do]')) {
      button.hidden = order.status !== 'unpaid';
      button.onclick = () => (button.dataset.do === 'pay' ? pay(order.id) : cancel(order.id));
    }
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

// look reads the vouchers, and my orders as often as one of them may change by itself.
async function look() {
  const answer = await call('GET', `/vouchers?limit=20`);
  if (answer.status === 200) vouchers = new Map(answer.body.items.map((voucher) => [voucher.id, voucher]));
  show();
}

async function lookAtOrders() {
  if (!token) return;
  const me = await call('GET', '/auth/me');
  if (me.status === 200 && token) groups = me.body.groups ?? [];
  for (const voucher of vouchers.values()) {
    const entry = entries.get(voucher.id);
    if (voucher.allocation !== 'draw' || voucher.phase === 'upcoming' || entry?.status === 'won' || entry?.status === 'lost') continue;
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
    const voucher = await call('GET', `/vouchers/${order.voucher_id}`);
    order.title = voucher.body.title ?? order.voucher_id;
  }
  draw();
}

// buy repeats a request that was not decided, as every client should: the answer is the order, or that there is one.
async function buy(voucherID) {
  say('');
  buying.add(voucherID);
  show();
  try {
    for (let tries = 0; tries < 20; tries += 1) {
      const answer = await call('POST', `/vouchers/${voucherID}/seckill`);
      if (answer.body.leaf) return entries.set(voucherID, answer.body);
      if (answer.status === 201 || answer.status === 202) return await follow(answer.body);
      if (answer.body.code === 'ALREADY_ORDERED') return await follow({ id: answer.body.order_id });
      if (answer.status !== 0 && answer.status !== 429 && answer.status < 500) return refuse(answer, voucherID);
      say(word('waiting'));
      await pause(answer.wait * 1000);
    }
    return say(word('lost'));
  } finally {
    buying.delete(voucherID);
    look();
  }
}

// wait takes a place on a waitlist, giveUp gives it back.
async function wait(voucherID) {
  say('');
  const answer = await call('POST', `/vouchers/${voucherID}/waitlist`);
  if (answer.status !== 201 && answer.status !== 200) return refuse(answer, voucherID);
  places.set(voucherID, answer.body);
  return show();
}

async function giveUp(voucherID) {
  say('');
  const answer = await call('DELETE', `/vouchers/${voucherID}/waitlist`);
  if (answer.status !== 204 && answer.status !== 404) return refuse(answer);
  places.delete(voucherID);
  entries.delete(voucherID); // it is looked at again
  return show();
}

async function lookAtPlaces() {
  for (const voucher of vouchers.values()) {
    if (!token || !voucher.waitlist || voucher.allocation === 'draw' || voucher.phase === 'upcoming') continue;
    const answer = await call('GET', `/vouchers/${voucher.id}/waitlist`);
    if (answer.status === 200) places.set(voucher.id, answer.body);
    if (answer.status === 404) places.delete(voucher.id);
  }
}

// follow leads to an order, and waits until it is made.
async function follow(order) {
  say('');
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
  say('');
  const answer = await call('POST', `/orders/${id}/pay`);
  if (answer.status !== 202) return refuse(answer);
  const page = answer.body.payment_url ?? '';
  if (!/^https?:\/\//.test(page)) return lookAtOrders();
  const link = new URL(page);
  // The simulator beside this server leads back here; a provider is told where by the server.
  if (link.hostname === location.hostname && link.pathname.startsWith('/pay/')) link.searchParams.set('back', `${location.origin}/shop#orders`);
  return location.assign(link);
}

async function cancel(id) {
  say('');
  const answer = await call('POST', `/orders/${id}/cancel`);
  if (answer.status !== 200) return refuse(answer);
  await lookAtOrders();
  return look();
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
  sessionStorage.clear();
  enter('');
  draw();
  look();
  view('sale');
}
find('leave').addEventListener('click', leave);

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
  token = answer.body.access_token;
  sessionStorage.setItem('token', token);
  sessionStorage.setItem('name', who.username);
  form.elements.password.value = '';
  enter(who.username);
  await look();
  await lookAtOrders();
  await lookAtPlaces();
  show();
  view('sale');
  return undefined;
});

enter(sessionStorage.getItem('name') ?? '');
view(location.hash.slice(1) || 'sale');
look().then(lookAtOrders).then(lookAtPlaces);
setInterval(look, 1000);
setInterval(lookAtOrders, 3000);
setInterval(lookAtPlaces, 5000);
setInterval(draw, 1000);

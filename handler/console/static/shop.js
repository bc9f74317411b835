// The buyer's side of a sale, over the public API only. The token stays in this page's memory: a reload signs out.
'use strict';

const api = '/api/v1';
const find = (id) => document.getElementById(id);
const word = (key) => document.querySelector(`#words [data-word="${CSS.escape(key)}"]`)?.textContent ?? key;
const pause = (milliseconds) => new Promise((done) => { setTimeout(done, milliseconds); });
let token = '';
let order = null; // that the page shows
let clock = 0; // the server's clock less this page's, in milliseconds

// call asks the API. Its answer is {status, body}; a request that was not answered has the status 0.
async function call(method, path, body) {
  const headers = { Accept: 'application/json' };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers['Content-Type'] = 'application/json';
  try {
    const response = await fetch(api + path, { method, headers, body: body && JSON.stringify(body), credentials: 'omit', cache: 'no-store' });
    const text = await response.text();
    const wait = Number(response.headers.get('Retry-After') ?? 1);
    return { status: response.status, wait, body: text ? JSON.parse(text) : {} };
  } catch {
    return { status: 0, wait: 1, body: { code: 'lost' } };
  }
}

function say(text) {
  find('message').textContent = text;
  find('message').hidden = !text;
}

// refuse says why a call failed: the fields of a form, or the word for the code.
function refuse(answer) {
  const fields = (answer.body.errors ?? []).map((field) => `${field.location}: ${field.message}`);
  say([word(answer.body.code), ...fields].join(' – '));
}

const money = (minor, currency) => {
  const format = new Intl.NumberFormat(document.documentElement.lang, { style: 'currency', currency });
  return format.format(minor / 10 ** format.resolvedOptions().maximumFractionDigits);
};

function until(at) {
  const seconds = Math.max(0, Math.floor((Date.parse(at) - performance.now() - clock) / 1000));
  const two = (number) => String(number).padStart(2, '0');
  return `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
}

// show draws the vouchers. A card stays the same element, so that the keyboard's focus stays where it is.
function show(vouchers) {
  find('none').hidden = vouchers.length > 0;
  const old = new Map([...find('vouchers').children].map((card) => [card.dataset.id, card]));
  for (const voucher of vouchers) {
    const card = old.get(voucher.id) ?? make(voucher.id);
    old.delete(voucher.id);
    clock = Date.parse(voucher.server_time) - performance.now();
    const set = (field, text) => {
      const place = card.querySelector(`[data-field="${field}"]`);
      if (place.textContent !== text) place.textContent = text;
    };
    set('title', voucher.title);
    set('phase', word(voucher.phase));
    card.querySelector('[data-field="phase"]').className = `badge ${voucher.phase}`;
    set('price', money(voucher.price, voucher.currency));
    set('face_value', money(voucher.face_value, voucher.currency));
    set('left', `${voucher.remaining} / ${voucher.stock}`);
    const bar = card.querySelector('[data-field="bar"]');
    bar.max = voucher.stock;
    bar.value = voucher.remaining;
    const upcoming = voucher.phase === 'upcoming';
    set('countdown', voucher.phase === 'ended' ? '' : `${word(upcoming ? 'begins in' : 'ends in')} ${until(upcoming ? voucher.begin_at : voucher.end_at)}`);
    card.querySelector('[data-field="buy"]').disabled = !token || voucher.phase !== 'live';
  }
  for (const card of old.values()) card.remove();
}

function make(id) {
  const card = find('voucher').content.firstElementChild.cloneNode(true);
  card.dataset.id = id;
  card.querySelector('[data-field="buy"]').addEventListener('click', () => buy(id));
  find('vouchers').append(card);
  return card;
}

async function look() {
  const answer = await call('GET', '/vouchers?limit=20');
  if (answer.status === 200) show(answer.body.items);
}

// buy repeats a request that was not decided, as every client should: the answer is the order, or that there is one.
async function buy(voucherID) {
  say('');
  for (let tries = 0; tries < 20; tries += 1) {
    const answer = await call('POST', `/vouchers/${voucherID}/seckill`);
    if (answer.status === 201 || answer.status === 202) return follow(answer.body.id);
    if (answer.body.code === 'ALREADY_ORDERED') {
      refuse(answer);
      return follow(answer.body.order_id);
    }
    if (answer.status !== 0 && answer.status !== 429 && answer.status < 500) return refuse(answer);
    say(word('waiting'));
    await pause(answer.wait * 1000);
  }
  return say(word('lost'));
}

// follow shows an order until it has reached its end, or another one is shown.
async function follow(id) {
  order = { id };
  if (find('message').textContent === word('waiting')) say('');
  while (order?.id === id && token) {
    const answer = await call('GET', `/orders/${id}?wait=10s`);
    if (answer.status === 200 && order?.id === id) {
      order = answer.body;
      draw();
      if (['redeemed', 'canceled', 'expired', 'failed', 'refunded'].includes(order.status)) return;
    }
    await pause(1000);
  }
}

function draw() {
  const place = find('order');
  place.hidden = false;
  for (const field of place.querySelectorAll('[data-field]')) {
    const value = order[field.dataset.field];
    let text = value ?? '';
    if (field.dataset.field === 'status') {
      text = word(value);
      field.className = `badge ${value}`;
    }
    if (field.dataset.field === 'reason' && value) text = word(value);
    if (field.dataset.field === 'expires_at' && value) text = until(value);
    if (field.textContent !== text) field.textContent = text;
  }
  for (const part of place.querySelectorAll('[data-for]')) {
    part.hidden = !order[part.dataset.for] || (part.dataset.for === 'expires_at' && order.status !== 'unpaid');
  }
  const unpaid = order.status === 'unpaid';
  const link = find('payment');
  if (link.dataset.order !== order.id || !unpaid) link.hidden = true;
  find('pay').hidden = !unpaid || !link.hidden;
  find('cancel').hidden = !unpaid;
}

find('pay').addEventListener('click', async () => {
  const answer = await call('POST', `/orders/${order.id}/pay`);
  if (answer.status !== 202) return refuse(answer);
  const link = find('payment');
  const page = answer.body.payment_url ?? '';
  if (/^https?:\/\//.test(page)) {
    link.href = page;
    link.dataset.order = order.id;
    link.hidden = false;
    link.focus();
  }
  order = answer.body.order;
  return draw();
});

find('cancel').addEventListener('click', async () => {
  const answer = await call('POST', `/orders/${order.id}/cancel`);
  if (answer.status !== 200) return refuse(answer);
  order = answer.body;
  draw();
  return look();
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
  token = answer.body.access_token;
  form.hidden = true;
  form.elements.password.value = '';
  find('buyer').hidden = false;
  find('buyer').querySelector('b').textContent = who.username;
  return look();
});

find('leave').addEventListener('click', () => location.reload());

look();
setInterval(look, 1000);

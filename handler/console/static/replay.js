// A sale again: its curve, scrubbed and played, what it was for this visitor, and its draw, drawn again in this browser.
'use strict';

const toHex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16));

// verifyDraw computes a draw again from its proof and its leaves in drawn order, as docs/draw.md has it, and tells what holds.
async function verifyDraw(proof, leaves, voucherID) {
  const utf8 = (text) => new TextEncoder().encode(text);
  const join = async (...parts) => new Uint8Array(await new Blob(parts).arrayBuffer());
  const hash = async (...parts) => toHex(await crypto.subtle.digest('SHA-256', await join(...parts)));
  const signer = async (key) => {
    const made = await crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
    return async (...parts) => crypto.subtle.sign('HMAC', made, await join(...parts));
  };
  const secret = fromHex(proof.secret);
  const list = [...leaves].sort().map(fromHex); // in hex the order is that of the bytes
  const root = await hash(utf8(`seckill-draw-1 root\n${voucherID}\n`), ...list);
  const seed = proof.beacon ? await (await signer(secret))(utf8(`seckill-draw-2 seed\n${proof.beacon}\n${proof.value}`)) : secret;
  const sign = await signer(seed);
  const keys = [];
  for (let n = 0; n < leaves.length; n += 1000) { // so many are on their way at once
    keys.push(...await Promise.all(leaves.slice(n, n + 1000).map(async (leaf) => toHex(await sign(fromHex(proof.root), fromHex(leaf))))));
  }
  return {
    commitment: proof.algorithm === (proof.beacon ? 'seckill-draw-2' : 'seckill-draw-1') && await hash(secret) === proof.commitment,
    root: leaves.length === proof.entries && root === proof.root,
    order: keys.every((key, n) => n === 0 || keys[n - 1] < key), // one that is there twice is none
    winners: (proof.winners ?? 0) <= proof.entries,
  };
}

(async () => {
  const place = document.getElementById('again');
  const find = (id) => document.getElementById(id);
  const lang = document.documentElement.lang;
  const word = (key, ...values) => values.reduce((text, value, n) => text.replace(`{${n}}`, value), place.querySelector(`[data-word="${CSS.escape(key)}"]`)?.textContent ?? key);
  let token = sessionStorage.getItem('token') ?? '';
  // ask reads what everybody may, or what is the visitor's own: null is a no. No answer, or a busy server's, is none: it asks again.
  const ask = async (path, own = false) => {
    for (let wait = 1000; ; wait = Math.min(wait * 2, 30000)) {
      const headers = { Accept: 'application/json', ...(own && { Authorization: `Bearer ${token}` }) };
      const answer = await fetch(path, { headers, credentials: 'omit' }).catch(() => null);
      if (answer?.ok) return answer.json();
      if (answer?.status === 401) token = ''; // it has ended
      if (answer && answer.status < 500 && answer.status !== 429) return null;
      await new Promise((done) => { setTimeout(done, wait); });
    }
  };
  const { source, known } = place.dataset;
  const sale = source ? await ask(source) : JSON.parse(known);
  if (!sale) return;
  const { from, steps_ms: ends, left, heard, orders_ms: orders, last_unit: last, came_back: back, served } = sale.curve;
  const start = Date.parse(from);
  const number = (n) => n.toLocaleString(lang);
  const clock = (ms) => new Intl.DateTimeFormat(lang, { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3, hour12: false, timeZone: document.body.dataset.zone }).format(start + ms);
  const soldOut = sale.sold_out_after_ms === undefined ? undefined : orders[last - 1] ?? Date.parse(sale.begin_at) + sale.sold_out_after_ms - start;
  const sums = (list) => list.map(((sum) => (n) => { sum += n; return sum; })(0));
  const groups = ['OK', 'SOLD_OUT', 'else'].map((name) => {
    const codes = Object.keys(heard).filter((code) => (name === 'else' ? code !== 'OK' && code !== 'SOLD_OUT' : code === name));
    const counts = ends.map((_, step) => codes.reduce((sum, code) => sum + heard[code][step], 0));
    return { name, counts, sums: sums(counts) };
  });
  const attempts = sums(ends.map((_, step) => groups.reduce((sum, { counts }) => sum + counts[step], 0)));
  const stepAt = (ms) => { const step = ends.findIndex((end, n) => n > 0 && end >= ms); return ms < 0 ? 0 : step < 0 ? ends.length - 1 : step; };

  // The picture: above what is left, below what was heard a second. Each step is as wide as the others, so that the rush has its room.
  const until = soldOut === undefined ? ends.length - 1 : Math.min(ends.length - 1, Math.max(64, stepAt(soldOut * 1.5)));
  let shown = until;
  let at = until;
  const frame = find('picture');
  const make = (tag, attributes, text) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const lasting = (ms) => {
    const [n, unit] = ms < 1000 ? [ms, 'millisecond'] : ms < 60000 ? [ms / 1000, 'second'] : ms < 3600000 ? [ms / 60000, 'minute'] : ms < 86400000 ? [ms / 3600000, 'hour'] : [ms / 86400000, 'day'];
    return new Intl.NumberFormat(lang, { style: 'unit', unit, unitDisplay: 'short', maximumFractionDigits: 1 }).format(n).replace(/ ?(\D+)$/, (_, said) => ` ${{ sec: 's', hr: 'h' }[said] ?? said}`); // as the pages say it
  };
  let box = {};
  const xOf = (step) => box.left + step / shown * box.width;
  const xAt = (ms) => { const step = stepAt(ms); return xOf(step < 1 ? 0 : step - 1 + Math.min(1, (ms - ends[step - 1]) / (ends[step] - ends[step - 1]))); };
  function draw() {
    const wide = Math.max(frame.clientWidth, 280);
    const high = wide < 600 ? 320 : 380;
    box = { left: 56, width: wide - 68, top: 24, middle: high * 0.55, under: high * 0.62, bottom: high - 24 };
    const svg = make('svg', { viewBox: `0 0 ${wide} ${high}`, role: 'img', 'aria-label': frame.dataset.label });
    const axis = (y, text) => svg.append(make('line', { x1: box.left, x2: box.left + box.width, y1: y, y2: y, class: 'hair' }), make('text', { x: box.left - 6, y: y + 4, 'text-anchor': 'end' }, text));
    const most = Math.max(1, ...left);
    const y = (units) => box.middle - units / most * (box.middle - box.top);
    for (const units of new Set([0, Math.round(most / 2), most])) axis(y(units), number(units));
    const line = left.slice(0, shown + 1).map((units, step) => `${step ? 'L' : 'M'}${xOf(step).toFixed(1)} ${y(units).toFixed(1)}`).join('');
    svg.append(make('path', { d: `${line}V${box.middle}H${box.left}Z`, class: 'area line0' }), make('path', { d: line, class: 'line line0' }));
    const rate = (counts, step) => counts[step] * 1000 / (ends[step] - ends[step - 1]);
    const steps = Array.from({ length: shown }, (_, n) => n + 1);
    const peak = ceiling(Math.max(...steps.map((step) => groups.reduce((sum, { counts }) => sum + rate(counts, step), 0))));
    const heights = steps.map(() => 0);
    for (const n of [0, 0.5, 1]) axis(box.bottom - n * (box.bottom - box.under), Intl.NumberFormat(lang, { notation: 'compact' }).format(peak * n));
    groups.forEach(({ counts }, n) => {
      const bars = steps.map((step) => {
        const high = rate(counts, step) / peak * (box.bottom - box.under);
        const bottom = box.bottom - heights[step - 1];
        heights[step - 1] += high;
        return high && `M${xOf(step - 1).toFixed(1)} ${bottom.toFixed(1)}v${-high.toFixed(2)}h${(box.width / shown * (shown > 200 ? 1 : 0.85)).toFixed(2)}v${high.toFixed(2)}z`;
      }).filter(Boolean).join('');
      svg.append(make('path', { d: bars, class: `bar ${['line3', 'line1', 'line7'][n]}` }));
    });
    let free = -Infinity;
    for (let ms = 0, power = 10; ms <= ends[shown]; ms = ms < power ? power : [2, 5, 10].map((n) => n * power).find((n) => n > ms)) {
      if (ms >= 10 * power) power *= 10;
      const x = xAt(ms);
      const text = make('text', { x, y: box.bottom + 18, 'text-anchor': ms ? 'middle' : 'start' }, ms ? lasting(ms) : clock(0).replace(/[.,]\d+/, ''));
      if (x < free || x > box.left + box.width - 12) continue;
      svg.append(text);
      free = x + (ms ? 56 : 96);
    }
    if (soldOut !== undefined && stepAt(soldOut) <= shown) {
      const x = xAt(soldOut);
      const right = x > box.left + box.width / 2;
      svg.append(make('line', { x1: x, x2: x, y1: box.top - 16, y2: box.bottom, class: 'mark' }), make('text', { x: x + (right ? -5 : 5), y: box.top - 8, 'text-anchor': right ? 'end' : 'start', class: 'strong' }, word('sold out', clock(soldOut))));
    }
    svg.append(make('rect', { class: 'future', y: box.top, height: box.bottom - box.top }), make('line', { class: 'now', y1: box.top - 6, y2: box.bottom }));
    frame.replaceChildren(svg);
    tell();
  }

  // tell says what is known of the instant that the scrubber is at.
  function tell() {
    const x = xOf(at);
    for (const [name, value] of Object.entries({ x, width: Math.max(0, box.left + box.width - x) })) frame.querySelector('.future').setAttribute(name, value);
    for (const name of ['x1', 'x2']) frame.querySelector('.now').setAttribute(name, x);
    const [when, ms] = [clock(ends[at]), ends[at]];
    find('clock').textContent = `${when} · +${lasting(ms)}`;
    find('at').value = at;
    find('at').setAttribute('aria-valuetext', `${when}, ${word('left')}: ${number(left[at])}`);
    const until = (units) => units.filter(({ at_ms: one }) => one <= ms).length;
    const values = { left: left[at], ...Object.fromEntries(groups.map(({ name, sums: sum }) => [name, sum[at]])), back: until(back), served: until(served) };
    for (const one of place.querySelectorAll('[data-now]')) one.textContent = number(values[one.dataset.now]);
  }

  let playing = 0;
  const lasts = 12000; // a whole picture, in ms
  function play(on) {
    clearInterval(playing);
    playing = 0;
    if (on) {
      const first = at >= shown ? 0 : at;
      const began = performance.now();
      playing = setInterval(() => {
        at = Math.min(shown, first + Math.floor((performance.now() - began) / lasts * shown));
        tell();
        if (at >= shown) play(false);
      }, 33);
    }
    for (const [name, icon] of [['play', '.plays'], ['pause', '.pauses']]) find('play').querySelector(icon).hidden = (name === 'pause') !== Boolean(playing);
  }
  if (from) {
    for (const hidden of place.querySelectorAll('[data-scripted]')) hidden.hidden = false;
    find('steps').open = false;
    find('at').max = shown;
    draw();
    new ResizeObserver(() => { if (Math.abs(frame.clientWidth - frame.dataset.width) > 1) { frame.dataset.width = frame.clientWidth; draw(); } }).observe(frame);
    frame.dataset.width = frame.clientWidth;
    find('play').addEventListener('click', () => play(!playing));
    find('at').addEventListener('input', (event) => { play(false); at = Number(event.target.value); tell(); });
    for (const range of place.querySelectorAll('[data-range]')) {
      range.hidden = until === ends.length - 1;
      range.addEventListener('click', () => {
        play(false);
        shown = range.dataset.range === 'all' ? ends.length - 1 : until;
        at = shown;
        find('at').max = shown;
        for (const one of place.querySelectorAll('[data-range]')) one.setAttribute('aria-pressed', String(one === range));
        draw();
      });
    }
    place.dataset.drawn = '';
  }

  // A table for a spreadsheet: the numbers and tables of the page, then the steps.
  const cell = (text) => `"${String(text).replace(/\s+/g, ' ').trim().replace(/^[=+\-@]/, "'$&").replaceAll('"', '""')}"`;
  function csv() {
    const texts = (nodes) => [...nodes].map((node) => node.textContent);
    const facts = [...document.querySelectorAll('main dl > div')].map((fact) => [fact.querySelector('dt').textContent, ...texts(fact.querySelector('dd').children.length ? fact.querySelector('dd').children : [fact.querySelector('dd')])]);
    const tables = [...document.querySelectorAll('main table:not(#steps table)')].flatMap((table) => [[], ...[...table.rows].map((row) => texts(row.cells))]);
    const codes = Object.keys(heard);
    const steps = ends.map((end, step) => [new Date(start + end).toISOString(), left[step], ...codes.map((code) => heard[code][step])]);
    return [[sale.title], ...facts, ...tables, [], [word('until'), word('left'), ...codes.map((code) => (code === 'OK' ? word('OK') : code))], ...steps].map((row) => row.map(cell).join(',')).join('\r\n');
  }
  const deeds = {
    print: () => print(),
    csv: () => {
      const link = document.createElement('a');
      link.href = URL.createObjectURL(new Blob(['\ufeff', csv(), '\r\n'], { type: 'text/csv' }));
      link.download = `sale-${sale.voucher_id}.csv`;
      link.click();
      URL.revokeObjectURL(link.href);
    },
  };
  document.addEventListener('click', (event) => deeds[event.target.closest('[data-does]')?.dataset.does]?.());

  // The draw: read what is published, and compute it again.
  let entry = null;
  let leaves = [];
  const api = `/api/v1/vouchers/${sale.voucher_id}`;
  find('verify')?.addEventListener('click', async () => {
    const button = find('verify');
    const says = find('verified');
    const say = (text, kind) => { says.className = `alert ${kind}`; says.textContent = text; says.hidden = false; };
    find('findings').replaceChildren();
    if (!window.crypto?.subtle) { say(word('no crypto'), 'refusal'); return; }
    button.disabled = true;
    try {
      const proof = await ask(`${api}/draw`);
      if (!proof?.drawn_at) { say(word('not drawn'), 'warm'); return; }
      leaves = [];
      for (let cursor = ''; cursor !== undefined;) {
        say(word('reading', number(leaves.length), number(proof.entries)), 'warm');
        const page = await ask(`${api}/draw/entries?limit=5000&cursor=${cursor}`);
        if (!page) { say(word('unread'), 'refusal'); return; }
        leaves.push(...page.items);
        cursor = page.next_cursor || undefined;
      }
      const found = await verifyDraw(proof, leaves, sale.voucher_id);
      find('findings').replaceChildren(...Object.entries(found).map(([what, holds]) => {
        const line = document.createElement('li');
        line.className = holds ? 'holds' : 'fails';
        line.textContent = word(`${what} ${holds ? 'holds' : 'fails'}`, number(leaves.length), number(proof.winners ?? 0));
        return line;
      }));
      const well = Object.values(found).every(Boolean);
      say(word(well ? 'holds' : 'fails'), well ? 'well done' : 'refusal');
      mine();
    } finally { button.disabled = false; }
  });

  // What the sale was for this visitor: of the visitor's own rows, and of what this browser has noted of itself.
  const tabs = new BroadcastChannel('shop');
  async function mine() {
    const lines = [];
    const order = token && (await ask(`/api/v1/orders?voucher_id=${sale.voucher_id}&limit=100`, true))?.items.filter(({ status }) => status !== 'failed').at(-1);
    const went = last && soldOut !== undefined ? word('last unit', number(last), clock(soldOut)) : '';
    if (order) {
      const ms = Date.parse(order.created_at) - start;
      const nth = orders.filter((one) => one < ms).length + 1;
      lines.push(nth > orders.length ? word('my late order', clock(ms), number(orders.length)) : word('my order', clock(ms), number(nth)), went);
    }
    if (token && !entry && place.dataset.draws !== undefined) entry = await ask(`${api}/entry`, true);
    if (entry) lines.push(leaves.includes(entry.leaf) ? word('my leaf', number(leaves.indexOf(entry.leaf) + 1), number(leaves.length)) : word('my entry', clock(Date.parse(entry.entered_at) - start)));
    const waits = token && !entry && served.length > 0 && await ask(`${api}/waitlist`, true);
    if (waits) lines.push(word('my place', clock(Date.parse(waits.joined_at) - start)));
    const pressed = JSON.parse(sessionStorage.getItem('pressed') ?? '{}')[sale.voucher_id];
    if (pressed) {
      const step = stepAt(pressed - start);
      lines.push(word('pressed', clock(pressed - start), number((attempts[step - 1] ?? 0) + 1), number(attempts[step])));
      if (!order) lines.push(went);
    }
    if (lines.length === 0) lines.push(word(token ? 'nothing of me' : 'who are you'));
    find('mine').textContent = lines.filter(Boolean).join(' ');
    find('mine').hidden = false;
  }
  if (source && from) {
    tabs.onmessage = ({ data }) => { if (data.token && !token) { token = data.token; mine(); } };
    if (!token) tabs.postMessage({ asks: true });
    mine();
  }
})();

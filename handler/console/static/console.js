// What every page does: it tells the server the browser's time zone, counts down on the server's clock, opens dialogs,
// copies ids, guards what was typed, and lets htmx show parts of pages under the content policy.
'use strict';

document.documentElement.dataset.scripted = ''; // console.css hides what only scripts bring to life

// The server shows times in the zone that this cookie names. It is no secret.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && zone !== document.body.dataset.zone) {
  document.cookie = `seckill-zone=${zone}; path=/; max-age=31536000; samesite=strict`;
}

// The policy lets no text become a part of a page, or a script, but what htmx has read from this server. Its expressions
// that are evaluated are off.
const none = () => { throw new Error('the policy of this page allows no script in a text'); };
const pass = { createHTML: (text) => text, createScript: none };
htmx.registerExtension('policy', {
  init: (api) => api.initSecurity(window.trustedTypes ? trustedTypes.createPolicy('htmx', pass) : pass, none, none),
});

// An answer that asks to sign in is no part of this page.
document.addEventListener('htmx:before:swap', (event) => {
  const answer = event.detail.ctx?.response?.raw;
  if (answer?.redirected && new URL(answer.url).pathname.endsWith('/sign-in')) {
    event.preventDefault();
    location.assign(answer.url);
  }
});

// The browser's clock may be wrong. What has passed since the page was made is measured on the one that is never set.
// The server made it between the request and the answer's beginning.
const [opening] = performance.getEntriesByType('navigation');
const madeAt = Date.parse(document.body.dataset.now) - ((opening?.requestStart ?? 0) + (opening?.responseStart ?? 0)) / 2;
const serverNow = () => madeAt + performance.now();

// ceiling is the number at the top of an axis: 1, 2 or 5 times a power of ten.
function ceiling(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= most);
}

function span(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  const two = (number) => String(number).padStart(2, '0');
  const days = Math.floor(seconds / 86400);
  const clock = `${two(Math.floor(seconds / 3600) % 24)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return days > 0 ? `${days} d ${clock}` : clock;
}

function countDown() {
  for (const place of document.querySelectorAll('[data-until]')) {
    place.textContent = `${place.dataset.words} ${span(Date.parse(place.dataset.until) - serverNow())}`;
  }
}
countDown();
setInterval(countDown, 1000);

document.addEventListener('click', async (event) => {
  const button = event.target.closest('[data-opens], [data-closes], [data-copies]');
  if (!button) return;
  const { opens, closes, copies } = button.dataset;
  if (opens) document.getElementById(opens).showModal();
  if (closes === 'dialog') button.closest('dialog').close();
  else if (closes) button.closest(closes).remove();
  if (copies) {
    await navigator.clipboard.writeText(copies);
    button.classList.add('copied');
    setTimeout(() => button.classList.remove('copied'), 1500);
  }
});
// A dialog whose form was refused is there again.
const reopen = () => { for (const dialog of document.querySelectorAll('dialog[data-open]:not([open])')) dialog.showModal(); };
reopen();
document.addEventListener('htmx:after:swap', () => {
  reopen();
  countDown();
  if (document.activeElement === document.body) document.querySelector('[data-focus]')?.focus();
});

// The zones that a sale can be in are those that the browser knows.
const zones = document.getElementById('zones');
if (zones) zones.append(...Intl.supportedValuesOf('timeZone').map((name) => Object.assign(document.createElement('option'), { value: name })));

// Ctrl-K finds a customer from anywhere.
addEventListener('keydown', (event) => {
  const field = document.querySelector('.find input');
  if (event.key !== 'k' || !(event.ctrlKey || event.metaKey) || !field?.checkVisibility()) return;
  event.preventDefault();
  field.select();
  field.focus();
});

// One box chooses all of a list's page.
document.addEventListener('change', ({ target }) => {
  const all = target.dataset.all;
  if (all) for (const box of target.form.querySelectorAll(`[name="${all}"]`)) box.checked = target.checked;
});

// A form that was typed into asks before it is left.
let dirty = false;
document.addEventListener('input', (event) => { dirty ||= Boolean(event.target.closest('form[data-guard]')); });
document.addEventListener('submit', () => { dirty = false; });
addEventListener('beforeunload', (event) => { if (dirty) event.preventDefault(); });

// A session that is about to end says so; it goes on when that is asked for, for eight hours at most.
const ending = document.getElementById('ending');
const warnFor = 5 * 60 * 1000;
let ends = Date.parse(document.body.dataset.ends ?? '');
function warn() {
  const left = ends - serverNow();
  ending.hidden = !(left < warnFor);
  ending.querySelector('.countdown').textContent = span(left);
}
if (ending && ends) {
  setInterval(warn, 1000);
  ending.querySelector('[data-stays]').addEventListener('click', async (event) => {
    const answer = await fetch('/console/session', { method: 'POST', redirect: 'error' }).catch(() => null);
    const later = answer?.ok ? Date.parse(await answer.text()) : ends;
    if (later > ends + 60000) ends = later;
    else {
      event.target.hidden = true;
      ending.querySelector('[data-again]').hidden = false;
    }
    warn();
  });
}

// A sale as it goes on: numbers and charts, drawn from the readings that the server sends. The server keeps an hour of
// them; what an action changes on the page leaves the charts alone.
'use strict';

const sale = document.getElementById('live');
const kept = 3600; // seconds that the charts show at most
const least = 120; // and at least
const hole = 20; // seconds without a reading are a gap in a line
const stale = 2; // seconds without a reading from which the numbers are old
const lang = document.documentElement.lang;

// What a series shows of a reading; null is a gap in its line.
const series = {
  units: (reading, name) => reading[name],
  counts: (reading, name) => reading.counts?.[name],
  attempts: (reading) => attempts(reading),
  answers: (reading, name) => reading.per_second && (reading.per_second[name] ?? 0),
  latency: (reading, name) => reading.latency?.[name],
  backlog: (reading, name) => reading.backlog?.[name],
};

const attempts = ({ per_second: rates }) => rates && Object.values(rates).reduce((sum, rate) => sum + rate, 0);

const times = []; // in seconds, oldest first: what all columns share
const columns = new Map(); // by chart and name
let marks = []; // what administrators did: {at, what}

function column(chart, name) {
  const key = `${chart}/${name}`;
  if (!columns.has(key)) columns.set(key, { chart, name, values: times.map(() => null) });
  return columns.get(key).values;
}

function keep(reading) {
  const at = Date.parse(reading.now) / 1000;
  if (at <= times.at(-1)) return;
  if (at - times.at(-1) > hole) { // nobody has read meanwhile
    times.push(times.at(-1) + 1);
    for (const { values } of columns.values()) values.push(null);
  }
  times.push(at);
  for (const { chart, name, values } of columns.values()) values.push(series[chart](reading, name) ?? null);
  if (at - times[0] < kept + 60) return;
  const gone = times.findIndex((time) => at - time <= kept);
  times.splice(0, gone);
  for (const { values } of columns.values()) values.splice(0, gone);
}

function short(number) {
  if (number == null) return '–';
  return number < 10 && number % 1 !== 0 ? number.toFixed(1) : Math.round(number).toLocaleString(lang);
}

const windowed = () => {
  const end = times.at(-1) ?? Date.now() / 1000;
  return [Math.max(end - kept, Math.min(times[0] ?? end, end - least)), end];
};
const colour = (place) => getComputedStyle(place).color;
const clock = new Intl.DateTimeFormat(lang, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false, timeZone: document.body.dataset.zone });
const clockShort = new Intl.DateTimeFormat(lang, { hour: '2-digit', minute: '2-digit', hour12: false, timeZone: document.body.dataset.zone });

// marked draws what administrators did as lines from the top to the bottom, each with its word.
function marked(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.font = `${11 * devicePixelRatio}px ${getComputedStyle(document.body).fontFamily}`;
  ctx.fillStyle = colour(plot.root.parentElement);
  ctx.strokeStyle = ctx.fillStyle;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  const [from, to] = windowed();
  let free = -Infinity;
  for (const { at: milliseconds, what } of marks) {
    const at = milliseconds / 1000;
    const words = sale.querySelector(`[data-word="mark ${what}"]`)?.textContent ?? what;
    if (at < from || at > to) continue;
    const x = Math.round(plot.valToPos(at, 'x', true));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const width = ctx.measureText(words).width + 6 * devicePixelRatio;
    const left = x + width > bbox.left + bbox.width ? x - width : x + 3 * devicePixelRatio;
    if (left < free) continue; // its line is there all the same
    ctx.fillText(words, left, bbox.top + 11 * devicePixelRatio);
    free = left + width;
  }
  ctx.restore();
}

// picture makes the chart of a figure: its lines are those of the list below it.
function picture(figure) {
  const { chart, unit } = figure.dataset;
  const place = figure.querySelector('.plot');
  const lines = [...figure.querySelectorAll('[data-series]')];
  const values = lines.map((line) => column(chart, line.dataset.series));
  const faint = () => colour(place);
  const hair = () => colour(figure.querySelector('figcaption i') ?? place);
  const axis = { stroke: faint, grid: { stroke: hair, width: 1 }, ticks: { show: false }, font: `11px ${getComputedStyle(document.body).fontFamily}` };
  const plot = new uPlot({
    width: place.clientWidth || 300, height: 172, legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    scales: { x: { time: true, range: () => windowed() }, y: { range: (_, low, high) => [0, ceiling(high)] } },
    axes: [
      { ...axis, size: 28, space: 80, values: (_, splits) => splits.map((at) => (splits[1] - splits[0] < 60 ? clock : clockShort).format(at * 1000)) },
      { ...axis, size: 56, values: (_, splits) => splits.map((n) => (n == null ? '' : n.toLocaleString(lang) + (unit ? ` ${unit}` : ''))) },
    ],
    series: [{}, ...lines.map((line) => {
      const swatch = line.querySelector('i');
      return { stroke: () => colour(swatch), width: 2, dash: JSON.parse(getComputedStyle(line).getPropertyValue('--dash') || '[]'), points: { show: false }, spanGaps: false };
    })],
    hooks: { draw: [marked], setCursor: [() => tell()] },
  }, [times, ...values], place);
  new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 172 })).observe(place);

  // tell writes the numbers beside the lines: the latest ones, or those under the pointer.
  function tell() {
    const at = plot.cursor.idx ?? times.length - 1;
    lines.forEach((line, n) => { line.querySelector('b').textContent = short(values[n][at]); });
    const when = figure.querySelector('[data-when]');
    if (when) when.textContent = plot.cursor.idx == null || times[at] == null ? '' : clock.format(times[at] * 1000);
  }

  return () => {
    lines.forEach((line, n) => {
      // A reason that nobody has heard for the time of the chart is not shown.
      const silent = chart === 'answers' && line.dataset.series !== 'OK' && !values[n].some((value) => value > 0);
      if (line.hidden !== silent) {
        line.hidden = silent;
        plot.setSeries(n + 1, { show: !silent });
      }
    });
    if (chart === 'backlog') figure.hidden = !values[0].some((value) => value != null);
    plot.setData([times, ...values]);
    tell();
  };
}

// spark makes the small curve of a number.
function spark(place) {
  const [chart, name] = place.dataset.spark.split('/');
  const values = column(chart, name);
  const plot = new uPlot({
    width: place.clientWidth || 120, height: 32, legend: { show: false }, cursor: { show: false }, padding: [2, 0, 2, 0],
    scales: { x: { time: true, range: () => windowed() }, y: { range: (_, low, high) => [0, ceiling(high)] } },
    axes: [{ show: false }, { show: false }],
    series: [{}, { stroke: () => colour(place), width: 1.5, spanGaps: false, points: { show: false } }],
  }, [times, values], place);
  new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 32 })).observe(place);
  return () => plot.setData([times, values]);
}

const drawers = [...sale.querySelectorAll('[data-chart]')].map(picture).concat([...sale.querySelectorAll('[data-spark]')].map(spark));
const draw = () => { for (const drawer of drawers) drawer(); };
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => setTimeout(draw));

let latest = -Infinity; // when the latest reading came
let ageing = 0; // the timer that says when it is old
let reading = null;
let trouble = '';

function show() {
  for (const place of document.querySelectorAll('[data-live]')) {
    const value = place.dataset.live.split('/').reduce((of, name) => (of == null ? of : of[name]), reading);
    if (value === undefined) continue;
    const text = 'money' in place.dataset ? money(value) : short(value);
    place.textContent = value != null && place.dataset.unit ? `${text} ${place.dataset.unit}` : text;
  }
  for (const bar of document.querySelectorAll('[data-bar]')) {
    bar.max = reading.stock;
    bar.value = reading.remaining;
  }
  for (const phase of document.querySelectorAll('[data-phase]')) {
    phase.textContent = sale.querySelector(`[data-word="${reading.phase}"]`)?.textContent ?? reading.phase;
    phase.className = `badge ${reading.phase}`;
  }
  sale.classList.toggle('before', ['draft', 'upcoming'].includes(reading.phase));
  const head = document.getElementById('head');
  head.querySelector('[data-changed]').hidden = reading.tag === head.dataset.tag;
}

const money = (minor) => {
  const format = new Intl.NumberFormat(lang, { style: 'currency', currency: sale.dataset.currency });
  return format.format(minor / 10 ** format.resolvedOptions().maximumFractionDigits);
};

// The numbers say how old they are.
function age() {
  const seconds = (performance.now() - latest) / 1000;
  const old = seconds >= stale;
  document.body.classList.toggle('stale', old);
  const place = document.querySelector('[data-connection]');
  const { liveWord, lost, ago } = sale.dataset;
  place.hidden = false;
  place.className = `feed ${old ? 'old' : 'fresh'}`;
  const parts = [old ? trouble || lost : liveWord];
  if (seconds < 86400) parts.push(ago.replace('%s', old ? Math.floor(seconds) : seconds.toFixed(1)));
  place.textContent = parts.join(' · ');
}
setInterval(age, 200);

document.body.addEventListener('htmx:sse:before:message', (event) => {
  event.preventDefault(); // nothing of it is a part of the page
  const { message } = event.detail;
  if (message.event === 'ended') { // the page asks to sign in, and leads back
    location.reload();
    return;
  }
  const said = JSON.parse(message.data);
  if (message.event === 'history') {
    times.length = 0;
    for (const { values } of columns.values()) values.length = 0;
    for (const one of said.readings) keep(one);
    draw();
    return;
  }
  trouble = said.trouble ? sale.dataset.trouble : '';
  if (trouble) return;
  latest = performance.now();
  clearTimeout(ageing);
  ageing = setTimeout(age, stale * 1000 + 1); // a timer may be early by less
  reading = { ...said, attempts: attempts(said) };
  marks = said.marks ?? [];
  keep(said);
  show();
  age();
  draw();
});
document.body.addEventListener('htmx:after:swap', () => { if (reading) show(); });
// What could not even be begun is tried again.
const again = () => setTimeout(() => htmx.ajax('GET', sale.dataset.events, { source: sale, swap: 'none' }), 2000);
sale.addEventListener('htmx:error', again);
sale.addEventListener('htmx:response:error', again);

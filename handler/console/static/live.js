// A sale as it goes on: numbers and charts, drawn from the readings that the server sends.
'use strict';

const sale = document.querySelector('[data-events]');
const kept = 120; // seconds that a chart shows
const readings = []; // of that time, oldest first
const svg = 'http://www.w3.org/2000/svg';
const width = 600;
const height = 160;

// What a line shows of a reading; null, or nothing, is a gap in it.
const values = {
  units: (reading, series) => reading[series],
  answers: (reading, series) => reading.per_second && (reading.per_second[series] ?? 0),
  latency: (reading, series) => reading.latency?.[series],
  backlog: (reading, series) => reading.backlog?.[series],
};

function short(number) {
  if (number == null) return '–';
  return number < 10 && number % 1 !== 0 ? number.toFixed(1) : Math.round(number).toLocaleString(document.documentElement.lang);
}

// ceiling is the number at the top of an axis: 1, 2 or 5 times a power of ten.
function ceiling(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= most);
}

function points(chart, series, now, top) {
  const lines = [[]];
  for (const { at, reading } of readings) {
    const value = values[chart](reading, series);
    if (value == null) {
      if (lines.at(-1).length > 0) lines.push([]);
      continue;
    }
    const x = width * (1 - (now - at) / 1000 / kept);
    const y = height - (height - 4) * Math.min(1, value / top);
    lines.at(-1).push(`${x.toFixed(1)},${y.toFixed(1)}`);
  }
  // A point by itself is drawn as a dash.
  return lines.filter((line) => line.length > 0).map((line) => `M${line.join('L')}${line.length === 1 ? 'h3' : ''}`).join('');
}

function draw(figure, now) {
  const chart = figure.dataset.chart;
  const picture = figure.querySelector('svg');
  const lines = [...figure.querySelectorAll('[data-series]')];
  let most = 0;
  for (const { reading } of readings) {
    for (const line of lines) most = Math.max(most, values[chart](reading, line.dataset.series) ?? 0);
  }
  const top = ceiling(most);
  figure.querySelector('[data-top]').textContent = short(top);
  for (const line of lines) {
    const series = line.dataset.series;
    let path = picture.querySelector(`[data-line="${series}"]`);
    if (!path) {
      path = document.createElementNS(svg, 'path');
      path.dataset.line = series;
      path.setAttribute('class', line.className);
      picture.append(path);
    }
    path.setAttribute('d', points(chart, series, now, top));
    const latest = values[chart](readings.at(-1).reading, series);
    line.querySelector('b').textContent = short(latest);
    // A reason that nobody has heard for the time of the chart is not shown.
    const silent = chart === 'answers' && !readings.some(({ reading }) => reading.per_second?.[series] > 0) && series !== 'OK';
    line.hidden = silent;
    path.toggleAttribute('hidden', silent);
  }
  if (chart === 'backlog') figure.hidden = !readings.some(({ reading }) => reading.backlog);
}

function say(words) {
  const place = sale.querySelector('[data-connection]');
  if (place.textContent !== words) place.textContent = words;
}

function show(reading) {
  const now = performance.now();
  readings.push({ at: now, reading });
  while (now - readings[0].at > kept * 1000) readings.shift();
  for (const place of document.querySelectorAll('[data-live]')) {
    const name = place.dataset.live;
    if (reading[name] !== undefined) place.textContent = short(reading[name]);
  }
  const bar = document.querySelector('[data-bar]');
  bar.max = reading.stock;
  bar.value = reading.remaining;
  const phase = document.querySelector('[data-phase]');
  phase.textContent = sale.querySelector(`[data-word="${reading.phase}"]`)?.textContent ?? reading.phase;
  phase.className = `badge ${reading.phase}`;
  document.querySelector('[data-changed]').hidden = reading.tag === sale.dataset.tag;
  for (const figure of sale.querySelectorAll('[data-chart]')) draw(figure, now);
}

const source = new EventSource(sale.dataset.events);
source.onmessage = (event) => {
  const reading = JSON.parse(event.data);
  if (reading.trouble) {
    say(sale.dataset.trouble);
    return;
  }
  say(sale.dataset.connected);
  show(reading);
};
source.onerror = () => {
  say(sale.dataset.lost);
  if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000);
};
// The session has ended: the page asks to sign in, and leads back.
source.addEventListener('ended', () => {
  source.close();
  location.reload();
});

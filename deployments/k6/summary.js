// The outcome of a run in the words of a sale: on the terminal, and as a part of the HTML report.

const columns = ['count', 'med', 'p(95)', 'p(99)', 'max'];

export function summary(data, run) {
  const outcome = read(data, run);
  const files = { stdout: asText(outcome) };
  if (__ENV.OUTCOME) files[__ENV.OUTCOME] = asHTML(outcome);
  if (__ENV.SUMMARY) files[__ENV.SUMMARY] = JSON.stringify(data, null, 2);
  return files;
}

function read(data, { scenario, rate, duration, stock, promises }) {
  const value = (metric, stat) => (data.metrics[metric] && data.metrics[metric].values[stat]) || 0;
  const opened = Boolean(data.setup_data);
  const answers = [
    ['accepted', 'accepted'], ['sold out', 'sold_out'], ['already ordered', 'already_ordered'],
    ['browsed', 'browsed'], ['order settled', 'settled'], ['canceled', 'canceled'],
  ].filter(([, name]) => value(name, 'count') > 0).map(([label, name]) => [
    label, String(value(name, 'count')), ...columns.slice(1).map((stat) => value(`${name}_time`, stat).toFixed(1)),
  ]);
  // Nothing can be said of a sale that was not opened.
  const kept = !opened ? [] : promises.map(({ metric, rule, says, ofK6 }) => {
    const { thresholds, values } = data.metrics[metric] || {};
    const ok = Boolean(thresholds && thresholds[rule] && thresholds[rule].ok);
    const stat = rule.split(/[<>=]/)[0];
    return { ok, says, ofK6, broken: ok ? '' : `(${metric}: ${rule}, was ${values ? Number(values[stat].toFixed(3)) : 'not seen'})` };
  });
  const passed = opened && kept.every(({ ok }) => ok);
  return {
    title: `${scenario}: ${rate} visitors/s for ${duration} s on ${stock} units, order mode ${opened ? data.setup_data.mode : 'unknown'}`,
    answers,
    promises: kept,
    passed,
    verdict: judge(opened, kept.filter(({ ok }) => !ok)),
  };
}

// A machine on which k6 cannot make the visitors says nothing against the service, and nothing of the rate that was asked for.
function judge(opened, broken) {
  if (!opened) return 'THE SALE WAS NOT OPENED';
  if (broken.length === 0) return 'all promises were kept';
  if (broken.every(({ ofK6 }) => ofK6)) return 'K6 WAS TOO SLOW: the service kept its promises, at a lower rate than was asked for';
  return 'PROMISES WERE BROKEN';
}

function asText({ title, answers, promises, verdict }) {
  const row = (cells) => `  ${cells.map((cell, i) => (i === 0 ? cell.padEnd(16) : cell.padStart(10))).join('')}`;
  return [
    '', `  ${title}`, '', row(['answer', 'count', 'med ms', 'p95 ms', 'p99 ms', 'max ms']), ...answers.map(row), '',
    ...promises.map(({ ok, ofK6, says, broken }) => `  ${ok ? 'kept  ' : ofK6 ? 'SLOW  ' : 'BROKEN'}  ${says} ${broken}`.trimEnd()),
    '', `  ${verdict}`, '', '',
  ].join('\n');
}

function asHTML({ title, answers, promises, passed, verdict }) {
  const escape = (text) => text.replace(/[&<>]/g, (sign) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[sign]);
  const row = (cells, tag) => `<tr>${cells.map((cell) => `<${tag}>${escape(cell)}</${tag}>`).join('')}</tr>`;
  return `<style>
  #outcome { max-width: 1200px; margin: 1rem auto; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif }
  #outcome h1, #outcome h2 { font-size: 1.5rem; margin: .5rem 0 }
  #outcome td, #outcome th { padding: 0 1.5rem 0 0; text-align: right }
  #outcome :is(td, th):first-child { text-align: left }
  #outcome ul { list-style: none; padding: 0; columns: 2 }
  #outcome .broken { color: #b00020; font-weight: bold }
</style>
<section id="outcome">
<h1>${escape(title)}</h1>
<h2${passed ? '' : ' class="broken"'}>${escape(verdict)}</h2>
<table>${row(['answer', 'count', 'median ms', 'p95 ms', 'p99 ms', 'max ms'], 'th')}${answers.map((cells) => row(cells, 'td')).join('')}</table>
<ul>${promises.map(({ ok, says, broken }) => `<li${ok ? '' : ' class="broken"'}>${ok ? '✓' : '✗'} ${escape(says)} ${escape(broken)}</li>`).join('\n')}</ul>
</section>
`;
}

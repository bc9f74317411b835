// Load tests of one flash sale. All of them are open models: visitors arrive at a rate that does not care how fast
// the service answers, each of them another user. `make load` and `make load-local` run them; ./run sets the
// variables that have no value here, and says what they mean.
//
//   rush       everyone comes in the first second of the sale, for a quarter as many units
//   sustained  the same, at a steady rate: a part of the run sells, the rest refuses
//   mixed      visitors browse; half of them buy; buyers poll their order, and some cancel it or buy again
//   soak       as mixed, for long, and nobody finds it sold out
//
// A run fails when a promise is broken: see promises.js.
import exec from 'k6/execution';
import { Counter } from 'k6/metrics';
import { choice, number } from './settings.js';
import { promises } from './promises.js';
import { close, open } from './sale.js';
import { summary } from './summary.js';
import { awaitSettled, browse, buy, buyAgain, cancel, drawZero, newVisitor, tokens } from './visitor.js';

const run = {
  scenario: choice('SCENARIO', ['rush', 'sustained', 'mixed', 'soak']),
  rate: number('RATE'),
  duration: number('DURATION'),
  stock: number('STOCK'),
};
run.arrivals = run.rate * run.duration;
const shopping = run.scenario === 'mixed' || run.scenario === 'soak';
// Every second visitor of a shop buys, and every fifth buyer cancels: a fourth of the units is sold twice.
const buyers = shopping ? Math.floor(run.arrivals / 2) : run.arrivals;
const purchases = shopping ? Math.ceil(1.25 * run.stock) : run.stock;
if (run.scenario !== 'soak' && purchases >= buyers) throw new Error(`STOCK=${run.stock} is not sold out by ${buyers} buyers`);
if (run.scenario === 'soak' && run.stock < buyers) throw new Error(`STOCK=${run.stock} is sold out by ${buyers} buyers: a soak sells to its end`);
if (tokens.length <= run.arrivals) throw new Error(`${tokens.length} tokens are too few for ${run.arrivals} visitors`);

// A visitor occupies a VU until the last answer: some 200 ms, and twice as long in a shop. k6 makes more while the
// service is slower, which costs this machine time that it does not have. In a rush every visitor has one.
const perSecond = { rush: 1, sustained: 0.2, mixed: 0.4, soak: 0.4 }[run.scenario];
run.maxVUs = Math.max(100, Math.ceil(run.rate * (shopping ? 3 : 1.1)));
run.promises = promises(run);

export const options = {
  scenarios: {
    [run.scenario]: {
      executor: 'constant-arrival-rate',
      rate: run.rate,
      timeUnit: '1s',
      duration: `${run.duration}s`,
      preAllocatedVUs: Math.min(run.maxVUs, Math.max(50, Math.ceil(run.rate * perSecond))),
      maxVUs: run.maxVUs,
      gracefulStop: '60s', // the last visitor may wait 30 s for an order
    },
  },
  setupTimeout: '60s',
  teardownTimeout: '180s',
  summaryTrendStats: ['count', 'avg', 'med', 'p(95)', 'p(99)', 'max'],
  thresholds: run.promises.reduce((all, { metric, rule }) => ({ ...all, [metric]: [...(all[metric] || []), rule] }), {}),
};

export function setup() {
  return open(run.stock);
}

// Each visitor adds one, and takes it away after the last answer.
const visitorsLost = new Counter('visitors_lost');

export default function (sale) {
  const visitor = newVisitor(exec.scenario.iterationInTest, exec.scenario.progress >= 0.8 ? 'last' : 'first');
  visitorsLost.add(1);
  if (visitor.nth % run.rate === 0) drawZero(); // each second, for the answers that nobody gets in it
  if (shopping) shop(sale, visitor);
  else if (buy(sale, visitor) && visitor.nth % 10 === 0) buyAgain(sale, visitor);
  visitorsLost.add(-1);
}

function shop(sale, visitor) {
  browse(sale, visitor);
  if (visitor.nth % 2 === 1) return;
  if (!buy(sale, visitor) || !awaitSettled(visitor)) return;
  const nth = visitor.nth / 2;
  if (nth % 5 === 0) cancel(visitor);
  else if (nth % 5 === 1) buyAgain(sale, visitor);
}

export function teardown(sale) {
  close(sale, run.stock);
}

export function handleSummary(data) {
  return summary(data, run);
}

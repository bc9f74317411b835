// What must hold in a run: for each promise a metric, k6's threshold on it, and what it says.
import { list, number } from './settings.js';

// The promises of a kind of run: of its counts, of its times, and of the service's own figures where they are known.
export function promises(run) {
  return [...counts(run), ...sold(run), ...times(run), ...(list('OPS_URL').length > 0 ? processes(run) : [])];
}

function counts({ arrivals }) {
  return [
    promise('unexpected', 'count==0', 'every answer is one of those that the contract names'),
    promise('server_errors', 'count==0', 'no answer is a 5xx, and no connection breaks'),
    promise('busy', 'count==0', 'nobody is put off (429, 503)'),
    promise('checks', 'rate==1', 'every answer says what it must'),
    promise('visitors_lost', 'count==0', 'every visitor gets every answer'),
    promise('accepted_minus_rows', 'count==0', 'every accepted order is in the database, and no other'),
    promise('held_minus_live', 'count==0', 'accepted orders less canceled ones are the live ones'),
    promise('units_missing', 'count==0', 'the stock is what remains and what is held'),
    promise('users_twice', 'count==0', 'no user has two orders'),
    promise('audit_balanced', 'count==1', 'the audit balances'),
    // With fewer it was not this rate that was tested, which is k6's fault and not the service's.
    { ...promise('iterations', `count>=${Math.floor(0.99 * arrivals)}`, 'k6 keeps up: 99 % of the visitors come'), ofK6: true },
  ];
}

// Units that were canceled are sold again: in a mixed run more orders are accepted than there are units, while
// held_minus_live and units_missing hold the live ones to the stock.
function sold({ scenario, stock }) {
  switch (scenario) {
    case 'soak': return [promise('sold_out', 'count==0', 'nobody is told that it is sold out')];
    case 'mixed': return [promise('accepted', `count>=${stock}`, `each of the ${stock} units is sold`)];
    default: return [promise('accepted', `count==${stock}`, `exactly ${stock} orders are accepted, one for each unit`)];
  }
}

function times({ scenario }) {
  const within = (name, what, of = '') => {
    const limit = number(`P99_${name.toUpperCase()}`);
    return promise(`${name}_time${of}`, `p(99)<${limit}`, `${what} within ${limit} ms (p99)`);
  };
  const all = [within('accepted', 'an order is accepted'), within('sold_out', 'a visitor hears that it is sold out')];
  if (scenario === 'mixed' || scenario === 'soak') {
    all.push(within('browsed', 'a page is there'), within('settled', 'an accepted order can be paid'), within('canceled', 'an order is canceled'));
  }
  // A service that grows slower over hours is slow at the end: there 1 % of few orders counts.
  if (scenario === 'soak') all.push(within('accepted', 'in the last fifth an order is accepted', '{part:last}'));
  return all;
}

function processes({ maxVUs }) {
  const limit = number('MEMORY');
  return [
    // Two for each connection that may still be open, and some slack: a goroutine left by every order is far more.
    promise('goroutines_left', `value<${2 * maxVUs + 100}`, 'no work is left running in the service'),
    promise('memory_mib', `value<${limit}`, `an instance holds less than ${limit} MiB at the end`),
  ];
}

function promise(metric, rule, says) {
  return { metric, rule, says };
}

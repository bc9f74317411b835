// What the shop offers one visitor of one voucher. It touches no page, so that a test can see every state.
'use strict';

// offer tells, of a voucher as the API shows it to the visitor, what its button says, what it does (nothing: it is off), and in a
// sentence why. Of the visitor it gets: signedIn, groups, busy (a purchase is on its way), the live order, the entry in the draw and the
// place on the waitlist, and coolsUntil. What is the visitor's own comes first; then the refusals follow in the order of the API.
function offer(voucher, { signedIn, groups, busy, order, entry, place, coolsUntil }) {
  const off = (says, why = '') => ({ says, does: '', why });
  const on = (says, does, why = '') => ({ says, does, why });
  const waiting = ({ position }) => on(fill('place', position), 'give up', word('your turn'));
  if (busy) return off(word('buying'));
  if (order) return on(word({ processing: 'in the queue', unpaid: 'yours unpaid', paid: 'yours paid' }[order.status] ?? 'yours'), 'orders');
  if (entry?.status === 'entered') return off(voucher.phase === 'live' ? word('entered') : word('drawing'), voucher.beacon ? fill('beacon', voucher.beacon) : word('if drawn'));
  if (entry?.status === 'won') return on(word('yours'), 'orders');
  if (entry?.status === 'waiting') return waiting(entry);
  if (entry) return off(word('lost the draw'));
  if (place?.position) return waiting(place);
  if (signedIn && voucher.eligible === false) return off(word('not for you'), fill('in no group', list(voucher.groups)));
  const only = !signedIn && voucher.groups ? fill('for groups', list(voucher.groups)) : '';
  switch (voucher.phase) {
    case 'upcoming': return upcoming(voucher, groups, off, only);
    case 'live': break;
    case 'sold_out': if (voucher.waitlist) break; // falls through
    default: return off(word(voucher.phase), only);
  }
  const [does, why] = voucher.phase === 'sold_out' ? ['wait', word('who waits')] : voucher.allocation === 'draw' ? ['enter', word('chance')] : ['buy', ''];
  if (!signedIn) return on(word(`sign in to ${does}`), 'sign-in', only || why);
  if (Date.parse(coolsUntil) > now()) return off(fill('cools', left(coolsUntil)), word('ended unpaid'));
  return on(word(does), does === 'enter' ? 'buy' : does, why);
}

// upcoming is the offer before the visitor's own beginning, which is that of the visitor's groups where it is earlier.
function upcoming({ begin_at: begins, early, time_zone: zone }, groups, off, only) {
  if (!early?.begin_at) return off(fill('waits', left(begins)), only);
  if (early.groups.some((group) => groups.includes(group))) return off(fill('waits', left(early.begin_at)), fill('before others', when(zone, begins)));
  return off(fill('waits', left(begins)), only || fill('others before', list(early.groups), when(zone, early.begin_at)));
}

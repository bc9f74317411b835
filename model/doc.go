// Package model holds the words that all layers share, and needs the standard library alone: any layer may speak it.
//
// # Glossary
//
//   - Hot copy: a voucher as it is sold in the order mode async, in Redis: its window, price and stock, the marks, and
//     the reservations. Nothing else is called a copy.
//   - Epoch: the number of a hot copy; every rebuild begins the next. The database's record has the latest and the open
//     one; a hot copy of any other epoch is closed.
//   - Cache entry: what one instance remembers of a voucher, for less than a second.
//   - Mark: the field of a hot copy that names a user's order, reserved or live. A mark is a unit that is taken.
//   - Reservation: an order that a hot copy has admitted and that has no row yet: processing, for its user. To settle
//     it is to end it because its row is committed; to release it is to take its mark away too.
//   - Tombstone: a released order's id in a hot copy. It refuses a late repetition of the call that reserved the order.
//   - Barrier: the number of the queue's newest message when a hot copy was closed. A rebuild loads nothing before
//     every message of its voucher up to there is acknowledged.
//   - Intent: a row that announces a smaller stock before the hot copy is lowered: a trace of a process that dies.
//   - Outbox: the rows of units that the database has given back and a hot copy may not know of.
//   - Move: a change of an order's status. Transitions lists the legal ones.
//   - Overdue: of an order that is unpaid although its time has passed. It expires when that is found.
//   - Dead letter: an order, or a whole message, that cannot be stored.
//   - Drift: an order that the database, the hot copy and the queue disagree about.
package model

// Package queue is the promise behind a 202: orders that were admitted wait in
// a JetStream stream, on disk and flushed before they are acknowledged, until a
// worker has persisted them.
//
// Each voucher has a subject of its own in the stream, so that what waits of one
// can be told from what waits of the others.
//
// Nothing here decides what becomes of an order. Publishing answers "stored" or
// "unknown", never "not stored"; consuming hands orders out until they were
// persisted, at least once and any number of times. Both lean on the order id,
// by which the database recognises what it has seen.
package queue

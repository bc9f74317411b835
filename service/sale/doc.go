// Package sale is the road of one order in both order modes, from the request to the row (sync) or into the queue (async),
// and what may become of it until it is paid: its status, the wait for it, its cancellation.
//
// The handlers call Orders, internal/app puts it together. Storage, locks and the queue are behind the interfaces of
// ports.go, and the package cache below it holds what one instance remembers of vouchers.
//
// Read order.go first, then order_sync.go with internal/lane, or order_async.go with order_async_refusal.go.
package sale

// Package lock holds distributed locks: mutual exclusion between the
// goroutines of many processes, by way of a store they share.
//
//	locks := lock.New(lock.NewRedisStore(client)) // once per process
//	err := locks.Do(ctx, "order:42", func(ctx context.Context) error { … })
//
// By hand it is [Mutex.Lock] and [Lease.Unlock]. The locks of [NewRedisStore] are those
// of Redisson, so Java and Go processes exclude and wake each other. No lease holds back a
// process that is stopped: what must not happen twice needs a token or a constraint
// where it happens. See README.md; package driver is for authors of other stores.
package lock

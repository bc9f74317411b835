// Package lock holds distributed locks: mutual exclusion between the
// goroutines of many processes, by way of a store they share.
//
//	locks := lock.New(lock.NewRedisStore(client))
//	lease, err := locks.Mutex("lock:order:42").Lock(ctx, lock.Wait(time.Second))
//	if err != nil { … }                 // ErrTimeout, or the store's own error; nothing is left held
//	defer lease.Unlock()                // ErrLost: the work may not have been alone
//	work(lease.Context())               // ends with the cause ErrLost when the lock is lost
//	lease.Token()                       // to be checked inside the SQL transaction it protects
//
// The parts: a [Store] knows how to take, renew and give back one named lock
// and nothing else. A [Client] adds what is the same for every store: waiting,
// first come first served among the waiters of one process, re-entry by an
// owner that travels in the context, the watchdog that renews, the local clock
// that ends a lease before another owner can hold the lock. [All] and [Majority]
// make one lock of several.
//
// The default store, [NewRedisStore], keeps its locks in the layout of
// Redisson (https://github.com/redisson/redisson), so that Java and Go
// processes exclude and wake each other.
//
// What no lease can promise: a process that is stopped (SIGSTOP, a suspended
// machine, a long pause) does not see its lease end. Whatever must not happen
// twice needs a check where it happens: a fencing token compared in the same
// SQL transaction, or a constraint of the database.
package lock

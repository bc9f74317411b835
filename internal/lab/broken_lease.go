package lab

// noWatchdog is a correct SETNX lock, SET NX PX and compare-and-delete, that
// is never renewed.
//
// Why it breaks: the work takes longer than the lease, which was guessed long
// before. The lock ends under its holder, which does not know, and the next one
// begins while the first has yet to write.
// Cured by a watchdog that renews while the holder lives, and a context that
// ends when the lock is lost: the Redis hash. Where a holder may be stopped
// altogether, by a fencing token checked in the transaction it protects.
func noWatchdog() strategy {
	return strategy{
		name: "setnx, no watchdog", group: groupBroken, defect: defectLost, on: onRedis,
		why:     "the work outlives the lease, and the next one begins before it has written",
		cure:    "redis hash",
		attacks: []attack{outlive()},
		open:    openSpin(tryExpiring, freeOwn), ledger: openCells,
	}
}

// noReentry is the same lock, taken again by its own holder: a method that
// locks calls another one that locks.
//
// Why it breaks: SET NX does not know whose key it meets. The holder waits for
// itself. (With a lease and no watchdog it waits until its own lock expires,
// and then goes on without it, which is worse; the lab's lease is longer than
// its wait.)
// Cured by an owner and a hold count: the Redis hash, and every store of the
// lock package.
func noReentry() strategy {
	return strategy{
		name: "setnx, re-entered", group: groupBroken, defect: defectDeadlock, on: onRedis,
		why:     "the holder takes the lock again and waits for itself",
		cure:    "redis hash",
		attacks: []attack{reenter()},
		open:    openSpin(tryExpiring, freeOwn), ledger: openCells,
	}
}

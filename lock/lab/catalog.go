package main

import (
	"slices"

	"seckill/lock"
	"seckill/model"
)

// The groups of the table.
const (
	groupBroken = "broken"
	groupLock   = "locks"
	groupStock  = "stock"
)

// catalog is every strategy, in the order of the table.
func catalog() []strategy {
	all := slices.Concat(brokenLocks(), brokenInSQL(), onReplicas(), realLocks(), stocks())
	for i := range all {
		if all[i].broken() {
			all[i].group = groupBroken
		}
	}
	return all
}

// mended are the broken ones of the catalog, each with its defect mended by hand.
func mended() (all []strategy) {
	for _, s := range catalog() {
		if s.broken() {
			s.open, s.mended = s.mend, true
			all = append(all, s)
		}
	}
	return all
}

func named(all []strategy, name string) (s strategy, found bool) {
	i := slices.IndexFunc(all, func(s strategy) bool { return s.Name == name })
	if i < 0 {
		return strategy{}, false
	}
	return all[i], true
}

// broken is a strategy whose account is in Redis: the attack that breaks it, why it does, the real row that does it
// right, how it is opened, and how its mended twin is.
func broken(name string, shows defect, by attack, why, cure string, open, mend func(setup) locker) strategy {
	return strategy{
		Name: name, Why: why, Cure: cure, defect: shows, on: onRedis, attacks: []attack{by},
		open: under(open, sellInCells), mend: under(mend, sellInCells), ledger: inCells(),
	}
}

// brokenLocks are the strategies of the tutorials.
func brokenLocks() []strategy {
	// The lab starts two real processes, each with a mutex of its own.
	localMutex := broken("local mutex, 2 processes", defectLost, overlap(),
		"each process has a mutex of its own and lets one worker in", "redis hash", openLocal, right)
	localMutex.processes = true
	return []strategy{
		// Where the work allows it, the cheapest cure is a relative update under a constraint.
		broken("no lock", defectLost, overlap(), "both read before either writes; the second write buries the first",
			"any real lock, or the database constraint", openNone, right),
		localMutex,
		broken("check-then-set", defectLost, overlap(), "two find the lock free before either has set it", "setnx store",
			spinning(func(k *key) bool { return k.get() == "" && k.stand(pointChecked) && k.set() }, freeOwn), right),
		broken("setnx, no expiry", defectDeadlock, crash(pointRead), "the holder is killed, and its key stays for ever",
			"setnx store", spinning(func(k *key) bool { return k.setNX(k.owner, 0) }, freeAnybodys), right),
		// The same as no expiry at all, only rarer, and therefore found later.
		broken("setnx, then expire", defectDeadlock, crash(pointHalf),
			"the holder is killed between SETNX and EXPIRE, and its key stays for ever", "setnx store",
			spinning(func(k *key) bool { return k.setNX(k.owner, 0) && k.stand(pointHalf) && k.expire() }, freeOwn),
			spinning(func(k *key) bool { return takeOwn(k) && k.stand(pointHalf) }, freeOwn)),
		broken("setnx, no owner check", defectLost, staleUnlock(pointWritten),
			"a slow holder deletes the lock of the one after it, and a third walks in", "setnx store",
			spinning(takeOwn, freeAnybodys), right),
		broken("setnx, GET then DEL", defectLost, staleUnlock(pointOwner),
			"the lease runs out between GET and DEL, and the DEL hits somebody else's lock", "setnx store",
			spinning(takeOwn, func(k *key) bool { return k.get() == k.owner && k.stand(pointOwner) && freeAnybodys(k) }),
			spinning(takeOwn, func(k *key) bool { return k.stand(pointOwner) && freeOwn(k) })),
		// The holder is not told that its lease, guessed long before, is over. A watchdog renews it, and a context ends
		// when the lock is lost. Where a holder may be stopped altogether, the cure is a fencing token checked in the
		// transaction it protects.
		broken("setnx, no watchdog", defectLost, outlive(),
			"the work outlives the lease, and the next one begins before it has written", "redis hash", right, watched(renewOwn)),
		broken("watchdog, no owner check", defectDeadlock, renewedByOther(),
			"who lost the lock renews the key of the one after it, also when that is dead", "redis hash",
			watched(renewAnybodys), watched(renewOwn)),
		// SET NX does not know whose key it meets; an owner and a hold count do. The lab's lease is longer than its
		// wait: else the holder would wait until its own lock expires and go on without it, which is worse.
		broken("setnx, re-entered", defectDeadlock, reenter(), "the holder takes the lock again and waits for itself",
			"redis hash", right, product(onOne(hashStore))),
		// At READ COMMITTED, as here and as in the product. (Under REPEATABLE READ with innodb_snapshot_isolation, the
		// default of MariaDB 11.6, the second one gets error 1020.)
		{
			Name: "FOR UPDATE after the read", defect: defectLost, on: onMySQL, attacks: []attack{overlap()},
			Why: "the row is locked after it was read: both write what they worked out before", Cure: "stock: pessimistic",
			open: alone(sellForUpdate(false)), mend: alone(sellForUpdate(true)), ledger: inRow(selectAccount),
		},
	}
}

// brokenInSQL are the mistakes around a transaction, a row and a count.
func brokenInSQL() []strategy {
	return []strategy{
		// The best-known bug of the tutorial: @Transactional outside, synchronized inside.
		{
			Name: "unlock before COMMIT", defect: defectLost, on: onMySQL, attacks: []attack{beforeCommit()},
			Why:  "the transaction around the lock ends after it: the next one reads what was there before",
			Cure: "redis hash, around the transaction", ledger: inRow(selectAccount),
			open: under(right, sellInTransaction(false)), mend: under(right, sellInTransaction(true)),
		},
		{
			Name: "UPDATE without a guard", defect: defectOversold, on: onSQL, attacks: []attack{overlap()},
			Why:  "both saw the last unit; remaining = remaining - 1 asks for none in its WHERE, and no constraint does",
			Cure: "stock: conditional", ledger: inRow(selectUnits), open: alone(sellUnits("")), mend: alone(sellUnits(" AND units > 0")),
		},
		{
			Name: "version never raised", defect: defectLost, on: onSQL, attacks: []attack{overlap()},
			Why:  "each write compares the version it read, and none changes it",
			Cure: "stock: optimistic", ledger: inRow(selectAccount), open: alone(sellByVersion(0)), mend: alone(sellByVersion(1)),
		},
	}
}

// onReplicas are locks whose Redis has a replica that takes its place. They run with servers of the lab's own.
func onReplicas() []strategy {
	all := []strategy{
		broken("one lock, replica promoted", defectLost, attack{},
			"the replica had not got the lock yet: it gives it to another one", "one lock, synced; multilock; redlock",
			product(onOne(hashStore)), product(onOne(syncedStore))),
		realLock("one lock, synced", onRedis, "Synced(1): what the replica has not confirmed is not held", onOne(syncedStore)),
		realLock("multilock, promoted", onQuorum, "the other instances still know of the holder", onThree(lock.All)),
		realLock("redlock, promoted", onQuorum, "a majority still knows of the holder", onThree(lock.Majority)),
	}
	for i := range all {
		all[i].attacks, all[i].replicas = []attack{promoted(true), promoted(false)}, true
	}
	return all
}

// realLocks are those of the product's own lock package.
func realLocks() []strategy {
	return []strategy{
		realLock("redis hash", onRedis, "re-entrant, watchdog, unlock messages; Redisson's layout", onOne(hashStore)),
		realLock("setnx store", onRedis, "SET NX PX and compare-and-delete, with a watchdog", onOne(setNXStore)),
		realLock("mysql table", onMySQL, "a row per lock, expiry by the database's clock", onTable),
		// A lock that one instance forgets is still held on the others.
		realLock("multilock", onQuorum, "every one of three instances", onThree(lock.All)),
		// One instance may be down.
		realLock("redlock", onQuorum, "two of three instances", onThree(lock.Majority)),
	}
}

// realLock has to survive what breaks the broken ones.
func realLock(name string, on backing, why string, open func(setup) lock.Locker) strategy {
	return strategy{
		Name: name, Why: why, group: groupLock, on: on, open: under(product(open), sellInCells), ledger: inCells(),
		attacks: []attack{overlap(), crash(pointRead), staleUnlock(pointWritten), outlive(), reenter()},
	}
}

// stocks are the ways to sell without a lock above the database.
func stocks() []strategy {
	return []strategy{
		stock(model.StockConditional, onSQL, "the UPDATE states what it relies on"),
		stock(model.StockPessimistic, onMySQL, "SELECT … FOR UPDATE before the read"),
		stock(model.StockOptimistic, onSQL, "compares a version, begins anew"),
		{
			Name: "database constraint", group: groupStock, on: onSQL, attacks: []attack{overlap()},
			Why:  "relative updates; CHECK (remaining >= 0) refuses the unit too many",
			open: alone(sellUnderConstraint), ledger: inRow(selectAccount),
		},
	}
}

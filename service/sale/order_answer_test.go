package sale

import (
	"testing"
	"time"

	"seckill/service/servicetest"
)

// By the contract the longest answer takes the lock's wait budget and 5 s. The lock is free at the last moment, and whatever
// comes then, or before, stands still.
func TestTheLongestAnswer(t *testing.T) {
	t.Parallel()
	const wait, ever = 3 * time.Second, time.Hour
	busy := func(keys *servicetest.Locks) {
		keys.Busy = "lock:order:alice"
		time.AfterFunc(wait-time.Millisecond, func() { keys.With(func(l *servicetest.Locks) { l.Busy = "" }) })
	}
	for name, hang := range map[string]func(s shop){
		"the look before the lock": func(s shop) { s.table.ReadTook = ever },
		"the store of locks":       func(s shop) { s.keys.Took = ever },
		"the look behind the lock": func(s shop) {
			time.AfterFunc(wait/2, func() { s.table.With(func(db *servicetest.Table) { db.ReadTook = ever }) })
		},
		"the transaction": func(s shop) { s.desk.took = ever },
	} {
		servicetest.Bubble(t, "sync, "+name, func(t *testing.T) {
			s := newShop(t)
			s.deps.LockWait = wait
			busy(s.keys)
			hang(s)
			_ = s.unavailable(t, "alice")
		})
	}
	for name, hang := range map[string]func(s hotShop){
		"the look before the lock": func(s hotShop) { s.hot.Takes["Read"] = ever },
		"the look at the backlog": func(s hotShop) {
			s.line.with(func() { s.line.backlog.Age = ever })
			servicetest.Pass(2 * backlogEvery)
			s.hot.Takes["OrdersOf"] = ever
		},
		"the store of locks": func(s hotShop) { s.keys.Took = ever },
		"the reservation":    func(s hotShop) { s.hot.Takes["Reserve"] = ever },
		"the publish":        func(s hotShop) { s.line.took = ever },
		"the confirmation":   func(s hotShop) { s.hot.Takes["Confirm"] = ever },
	} {
		for _, script := range []bool{true, false} {
			servicetest.Bubble(t, "async, "+name+map[bool]string{true: ", locks of the script"}[script], func(t *testing.T) {
				s := newHotShop(t, func(o *Deps, a *AsyncDeps) { o.LockWait, a.ScriptLocks = wait, script })
				s.hot.Lock("alice")
				busy(s.keys)
				hang(s)
				_ = s.unavailable(t, "alice")
			})
		}
	}
}

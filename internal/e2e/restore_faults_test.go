//go:build faults

//part:databases

package e2e_test

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// The database is lost and restored from a backup, while Redis knows what was sold since. Those orders are lost with the
// database. Everything else holds: the hot copy is rebuilt from what the database has, and exactly the stock is sold. Each
// rebuild since the backup makes the epochs in the database lower than those in Redis. Without one they are the same and the
// copy looks healthy. Nobody has to help in either case, and no buyer from before has to come.
func TestADatabaseIsRestoredBesideANewerRedis(t *testing.T) {
	t.Parallel()
	const stock, before, since = 30, 8, 8
	for name, tt := range map[string]struct {
		running  bool
		rebuilds int
	}{
		"lower epochs, under running instances":      {true, 5},
		"lower epochs, before the instances start":   {false, 5},
		"the same epoch, under running instances":    {true, 0},
		"the same epoch, before the instances start": {false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, s := asyncOnOwnDatabase(t)
			a := launch(t, s)
			voucher := a.onSale(t, stock)
			buy := func(from, n int) map[string]string {
				t.Helper()
				bought := a.buysAll(t, voucher.ID, users(a.app, from, n))
				for id, user := range bought {
					a.becomes(t, model.Order{ID: id, UserID: user}, model.OrderUnpaid)
				}
				return bought
			}
			kept := buy(0, before)
			own.Stop()
			own.KeepData()
			own.Start()
			a.accepted(t, voucher.ID, a.user(before)) // it sells again
			lost := buy(100, since)
			// A message that is not acknowledged yet would bring its order back.
			check.Patiently(t, "the queue is empty", func() bool { return a.Audit(t, voucher.ID).Queue.Pending == 0 })
			for range tt.rebuilds {
				a.rebuild(t, voucher.ID)
				a.opens(t, voucher.ID)
			}

			if !tt.running {
				a.kill()
			}
			own.Kill()
			own.RestoreData()
			restored := time.Now()
			own.Start()
			if !tt.running {
				a.start(t)
				a.awaitReady(t)
			}
			a.accepted(t, voucher.ID, a.user(500)) // it sells again
			t.Logf("it sold again %.1f s after the database had begun to start", time.Since(restored).Seconds())
			a.quiet(t, voucher.ID)
			t.Logf("it was in balance %.1f s after the database had begun to start", time.Since(restored).Seconds())
			orders := a.kept(t, voucher.ID, kept)
			gone := 0
			for id := range lost {
				if _, there := orders[id]; !there {
					gone++
				}
			}
			t.Logf("of %d orders since the backup %d are gone", since, gone)
			check.Equal(t, "orders since the backup that are gone", gone, since)
			a.sellsOn(t, voucher.ID, 1000)
		})
	}
}

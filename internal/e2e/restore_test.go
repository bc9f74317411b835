package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// The database is lost and restored from a backup, while Redis knows what was sold since. Those orders are lost with the
// database. Everything else holds: the hot copy is rebuilt from what the database has, and exactly the stock is sold. Each
// rebuild since the backup makes the epochs in the database lower than those in Redis, and then nobody has to help. Without
// one they are the same and the copy looks healthy: the audit that the runbook asks for repairs it at once.
func TestADatabaseIsRestoredBesideANewerRedis(t *testing.T) {
	t.Parallel()
	const stock, before, since = 30, 8, 8
	for name, tt := range map[string]struct {
		running  bool
		rebuilds int
	}{
		"lower epochs, under running instances":      {true, 5},
		"lower epochs, before the instances start":   {false, 5},
		"the same epoch, before the instances start": {false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own, s := asyncOnOwnServers(t)
			a := launch(t, s)
			voucher := a.onSale(t, stock)
			buy := func(from, n int) map[string]string {
				t.Helper()
				bought := map[string]string{}
				for i := range n {
					order := a.accepted(t, voucher.ID, a.user(from+i))
					a.becomes(t, order, model.OrderUnpaid)
					bought[order.ID] = order.UserID
				}
				return bought
			}
			kept := buy(0, before)
			own.database.Stop()
			own.database.KeepData()
			own.database.Start()
			until(t, settlement, "it sells again", func() bool {
				got, err := a.place(t, voucher.ID, a.user(before))
				return err == nil && (got.status == http.StatusAccepted || got.code() == model.CodeAlreadyOrdered)
			})
			lost := buy(100, since)
			// A message that is not acknowledged yet would bring its order back.
			until(t, settlement, "the queue is empty", func() bool { return a.audit(t, voucher.ID).Queue.Pending == 0 })
			for range tt.rebuilds {
				check.Equal(t, "a rebuild is asked for", a.call(t, http.MethodPost, "/admin/vouchers/"+voucher.ID+"/rebuild", a.admin(t), nil).status, http.StatusAccepted)
				until(t, settlement, "it is rebuilt", func() bool { return a.audit(t, voucher.ID).Redis.State == string(model.CopyOpen) })
			}

			if !tt.running {
				a.kill()
			}
			own.database.Kill()
			own.database.RestoreData()
			restored := time.Now()
			own.database.Start()
			if !tt.running {
				a.start(t)
				a.awaitReady(t)
			}
			until(t, settlement, "the sale answers again", func() bool {
				got, err := a.place(t, voucher.ID, a.user(500))
				return err == nil && (got.status == http.StatusAccepted || got.code() == model.CodeAlreadyOrdered)
			})
			t.Logf("it sold again %.1f s after the database had begun to start", time.Since(restored).Seconds())
			if tt.rebuilds == 0 {
				until(t, settlement, "the repair leaves nothing to do", func() bool {
					said, err := runs(t, s, "audit", "--repair", "--voucher", voucher.ID)
					t.Log(said)
					return err == nil
				})
			}
			orders := a.conserved(t, voucher.ID, kept)
			unbroken(t, orders, kept)
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

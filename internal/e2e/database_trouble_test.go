package e2e_test

import (
	"database/sql"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/model"
)

// refusing is a trigger that refuses a voucher's orders with a signal.
func refusing(voucherID, signal string) string {
	return "CREATE TRIGGER refusing BEFORE INSERT ON orders FOR EACH ROW IF NEW.voucher_id = '" + voucherID + "' THEN " + signal + "; END IF"
}

// TestDatabaseTroubleIsLater: whatever number the database refuses orders with,
// it is 503 while it lasts, and nobody's order is refused or sold twice for it.
func TestDatabaseTroubleIsLater(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	a := start(t, s)
	voucher, other := a.onSale(t, 20), a.onSale(t, 200)
	db, err := sql.Open("mysql", s["SECKILL_DATABASE_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	run := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	const healed = "DROP TRIGGER refusing"
	buyers := 0
	for name, trouble := range map[string]struct{ begin, end string }{
		"1146, no table":       {"RENAME TABLE orders TO gone", "RENAME TABLE gone TO orders"},
		"1054, no column":      {"ALTER TABLE orders RENAME COLUMN price TO cost", "ALTER TABLE orders RENAME COLUMN cost TO price"},
		"1364, a new column":   {"ALTER TABLE orders ADD COLUMN tax INT NOT NULL", "ALTER TABLE orders DROP COLUMN tax"},
		"1644, a trigger":      {refusing(voucher.ID, "SIGNAL SQLSTATE '45000'"), healed},
		"1644, of class 23":    {refusing(voucher.ID, "SIGNAL SQLSTATE '23000'"), healed},
		"60000, never heard":   {refusing(voucher.ID, "SIGNAL SQLSTATE 'XX999' SET MYSQL_ERRNO = 60000"), healed},
		"1026, the disk":       {refusing(voucher.ID, "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1026"), healed},
		"1820, a new password": {refusing(voucher.ID, "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1820"), healed},
	} {
		buyers++
		token := a.token(t, a.user(buyers), model.RoleUser)
		run(trouble.begin)
		got := a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil)
		run(trouble.end)
		if got.status != http.StatusServiceUnavailable || got.code() != model.CodeUnavailable || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if got := a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", token, nil); got.status != http.StatusCreated {
			t.Errorf("after %s: %d %s", name, got.status, got.body)
		}
	}

	// In a rush orders of both vouchers share transactions.
	run(refusing(voucher.ID, "SIGNAL SQLSTATE '45000'"))
	answers := make(chan map[string][]answer, 1)
	go func() { answers <- rush(t, []*app{a}, voucher.ID, users(a, 100, 100), 1) }()
	won := winners(t, rush(t, []*app{a}, other.ID, users(a, 200, 100), 1))
	for user, all := range <-answers {
		if all[0].status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", user, all[0].status, all[0].body)
		}
	}
	run(healed)
	sold(t, a, other.ID, won, 100)
	if audit := a.audit(t, voucher.ID); !audit.Balanced || audit.Database.LiveOrders != int64(buyers) {
		t.Errorf("audit %+v, want %d live orders", audit, buyers)
	}
}

// TestLockedVoucherStopsNoOtherSale: somebody keeps one voucher's row locked. Transactions
// lock vouchers by id, so that those before it are locked by whoever waits for it, and
// those behind it are not. Buyers of both wait for it once at the most.
func TestLockedVoucherStopsNoOtherSale(t *testing.T) {
	t.Parallel()
	const (
		held  = 4 * time.Second
		every = 20 * time.Millisecond
		// once is a wait for the row, after which the others go on without it, and as much
		// again for a transaction that had begun meanwhile; the rest is for a busy machine.
		once = 2500 * time.Millisecond
	)
	for _, strategy := range []string{"conditional", "pessimistic", "optimistic"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := onServers(t).with(settings{"SECKILL_STOCK_STRATEGY": strategy})
			a := start(t, s)
			vouchers := []model.Voucher{a.onSale(t, 10_000), a.onSale(t, 10_000), a.onSale(t, 10_000)}
			slices.SortFunc(vouchers, func(a, b model.Voucher) int { return strings.Compare(a.ID, b.ID) })
			release := holdRow(t, s, vouchers[1].ID)
			var buyers sync.WaitGroup
			var mu sync.Mutex
			slowest := make([]time.Duration, len(vouchers))
			sales := make([]int, len(vouchers))
			began := time.Now()
			for n := 0; time.Since(began) < held; n++ {
				for i, voucher := range vouchers {
					buyers.Go(func() {
						asked := time.Now()
						got, err := a.place(t, voucher.ID, a.user(3*n+i))
						mu.Lock()
						defer mu.Unlock()
						if err == nil && got.status == http.StatusCreated {
							sales[i]++
						} else if i != 1 {
							t.Errorf("a buyer of the other voucher %d, %v after the lock, heard %d %s, %v", i, asked.Sub(began), got.status, got.body, err)
						}
						slowest[i] = max(slowest[i], time.Since(asked))
					})
				}
				<-time.After(every)
			}
			release()
			buyers.Wait()
			t.Logf("sold %v; slowest %v", sales, slowest)
			if worst := max(slowest[0], slowest[2]); worst > once {
				t.Errorf("a buyer of another voucher waited for %v", worst)
			}
			got, err := a.place(t, vouchers[1].ID, a.user(-1))
			if err != nil || got.status != http.StatusCreated {
				t.Errorf("after the lock: %d %s, %v", got.status, got.body, err)
			}
		})
	}
}

//go:build faults

//part:databases

package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/sqldb"
)

// Even ROLLBACK is refused, as without quorum: no unit is taken for nobody, and every acknowledged order is there.
func TestGaleraMemberThatRejectsQueries(t *testing.T) {
	t.Parallel()
	member := testserver.Galera(t, 1)[0]
	pool := check.Value(sql.Open("mysql", member.AdminDSN("")))(t)
	defer pool.Close()
	admin := check.Value(pool.Conn(t.Context()))(t)
	defer admin.Close()
	reject := func(what string) {
		check.Is(t, "the call", check.ErrorOf(admin.ExecContext(t.Context(),
			"SET GLOBAL wsrep_reject_queries = "+what)), nil)
	}
	// Units are taken, and their orders' INSERT is on its way.
	var armed atomic.Bool
	var rollbacks atomic.Int32
	dsn := newWire(t, member.DSN(testserver.DefaultSchema), func(_ *wire, statement string) verdict {
		if strings.HasPrefix(statement, "INSERT INTO orders") && armed.CompareAndSwap(true, false) {
			reject("ALL")
		}
		if statement == "ROLLBACK" {
			rollbacks.Add(1)
		}
		return pass
	})
	f := openFixture(t, stores()[0], sqldb.Options{DSN: dsn, Slack: check.Deadline})
	check.Must(t, f.db.Migrate(t.Context()))
	for variable, want := range map[string]string{"wsrep_on": "1", "wsrep_sync_wait": "1"} {
		var got string
		check.Must(t, f.db.SQL().QueryRowContext(t.Context(), "SELECT @@"+variable).Scan(&got))
		check.Equal(t, variable, got, want)
	}
	const stock, writers = 100_000, 8 // never sold out
	v := f.onSale(t, stock)
	var created, refused atomic.Int32
	var acknowledged sync.Map
	selling, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for range writers {
		load.Go(func() {
			for selling.Err() == nil {
				batch := []model.Order{order(t, v.ID, newID(t)), order(t, v.ID, newID(t))}
				ctx, cancel := context.WithTimeout(t.Context(), inDoubt)
				_, err := f.orders.CreateOrders(ctx, batch)
				cancel()
				switch {
				case err == nil:
					created.Add(2)
					for _, o := range batch {
						acknowledged.Store(o.ID, true)
					}
				case model.CodeOf(err) != model.CodeUnavailable:
					t.Errorf("an order: %v", err)
				case !errors.Is(err, model.ErrUnknownOutcome):
					refused.Add(1)
				}
			}
		})
	}
	await := func(what string, count *atomic.Int32, more int32) {
		enough := count.Load() + more
		check.Eventually(t, what, func() bool { return count.Load() >= enough })
	}
	const rounds = 5
	for range rounds {
		await("orders are made", &created, 100)
		armed.Store(true)
		await("orders are refused", &refused, 2*writers)
		if err := f.db.Ready(t.Context()); err == nil {
			t.Error("a member that rejects queries is ready")
		}
		reject("NONE")
	}
	await("orders are made again", &created, 100)
	stop()
	load.Wait()
	if n := rollbacks.Load(); n < rounds {
		t.Errorf("%d transactions were broken off", n)
	}
	check.Must(t, f.db.Ready(t.Context()))

	live := f.number(t, "SELECT COUNT(*) FROM orders WHERE voucher_id = ?", v.ID)
	f.balanced(t, v.ID, live)
	check.Equal(t, "units that are left", f.number(t, "SELECT remaining FROM vouchers WHERE id = ?", v.ID), stock-live)
	acknowledged.Range(func(id, _ any) bool {
		if _, err := f.orders.Get(t.Context(), id.(string)); err != nil {
			t.Errorf("an order that was acknowledged: %v", err)
		}
		return true
	})
	t.Logf("%d orders acknowledged, %d rows, %d calls refused", created.Load(), live, refused.Load())
}

// TestServerFrozen (SIGSTOP): no connection breaks, nothing is answered.
func TestServerFrozen(t *testing.T) {
	t.Parallel()
	f, server, _ := ownServer(t)
	hasty := f.hasty(t)
	v := f.onSale(t, 10)
	server.Pause()
	check.Eventually(t, "every thread has stopped", func() bool {
		threads := check.Value(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", server.PID())))(t)
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err == nil && !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return len(threads) > 0
	})
	hasty.unavailable(t, v.ID)
	server.Resume()
	check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
	f.balanced(t, v.ID, 1)
}

//go:build engines

package e2e_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// membersDSN names the members of a cluster beginning with one of them.
func membersDSN(members []*testserver.Server, first int) string {
	order := slices.Concat(members[first:], members[:first])
	addresses := make([]string, len(order))
	for i, member := range order {
		addresses[i] = member.Addr()
	}
	return strings.Replace(order[0].DSN(testserver.DefaultSchema), order[0].Addr(), strings.Join(addresses, ","), 1)
}

// onMember runs a statement on a member, which may have no quorum.
func onMember(t *testing.T, member *testserver.Server, statement string) {
	t.Helper()
	db, err := sql.Open("mysql", member.AdminDSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// refusals are the seconds in which nobody could buy: one voucher of its own is bought from again and again.
type refusals struct {
	longest time.Duration
	stop    chan struct{}
	done    sync.WaitGroup
}

func (a *app) watchRefusals(t *testing.T, voucherID string) *refusals {
	t.Helper()
	r := &refusals{stop: make(chan struct{})}
	r.done.Go(func() {
		last := time.Now()
		for n := 0; ; n++ {
			select {
			case <-r.stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			got, err := a.place(t, voucherID, a.user(5_000_000+n))
			if err == nil && (got.status == http.StatusCreated || got.status == http.StatusAccepted) {
				r.longest = max(r.longest, time.Since(last))
				last = time.Now()
			}
		}
	})
	return r
}

// end is the longest time between two purchases.
func (r *refusals) end() time.Duration {
	close(r.stop)
	r.done.Wait()
	return r.longest
}

// TestGaleraCluster: two instances sell through two members of three, exactly, and what one has sold the other shows
// at once; a member is killed and stays dead; the quorum is lost and bootstrapped; the dead come back.
//
//nolint:paralleltest // members that suspect each other by time-outs need the machine for themselves
func TestGaleraCluster(t *testing.T) {
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			members := testserver.Galera(t, 3)
			s := onServers(t)
			if mode == "async" {
				s = asyncOnServers(t)
			}
			a := launch(t, s.with(settings{"SECKILL_DATABASE_DSN": membersDSN(members, 0)})).app
			b := launch(t, s.with(settings{"SECKILL_DATABASE_DSN": membersDSN(members, 1)})).app
			exact := func(voucher model.Voucher, c *crowd, stock int) {
				if mode == "async" {
					b.quiet(t, voucher.ID, settlement)
				}
				sold(t, b, voucher.ID, c.told, stock)
			}

			// Exact sales through two writers, one after the other.
			for round := range 2 {
				const stock = 300
				voucher := a.onSale(t, stock)
				c := newCrowd(a, voucher.ID, b)
				c.buy(t, users(a, 10_000*round, 2*stock), 16)
				exact(voucher, c, stock)
			}

			// What was sold through one is there through the other.
			voucher := a.onSale(t, 1000)
			missing := 0
			for n := range 300 {
				from, to := a, b
				if n%2 == 1 {
					from, to = b, a
				}
				user := a.user(100_000 + n)
				got, err := from.place(t, voucher.ID, user)
				if err != nil || got.status >= 300 {
					t.Fatalf("%s buys: %d %s %v", user, got.status, got.body, err)
				}
				order := decode[model.Order](t, got)
				if shown := to.call(t, http.MethodGet, "/orders/"+order.ID, to.token(t, user, model.RoleUser), nil); shown.status != http.StatusOK {
					missing++
				}
			}
			check.Equal(t, "orders that the other instance did not show", missing, 0)

			// A member dies in the middle of a sale and stays dead.
			const stock = 1500
			voucher, watched := a.onSale(t, stock), a.onSale(t, 1_000_000)
			c := newCrowd(a, voucher.ID, b)
			watch := a.watchRefusals(t, watched.ID)
			var load sync.WaitGroup
			load.Go(func() { c.buy(t, users(a, 200_000, stock+200), 16) })
			c.afterSales(t, 200)
			members[0].Kill()
			load.Wait()
			t.Logf("%s: a member dies: %v between two purchases", mode, watch.end().Round(10*time.Millisecond))
			exact(voucher, c, stock)

			// Another dies: the last one has no quorum, and says so.
			lost := a.onSale(t, stock)
			c = newCrowd(a, lost.ID, b)
			load.Go(func() { c.buy(t, users(a, 300_000, stock+200), 16) })
			c.afterSales(t, 100)
			members[1].Kill()
			until(t, 60*time.Second, "the last member has no quorum", func() bool {
				return galeraStatus(t, members[2], "wsrep_cluster_status") != "Primary"
			})
			until(t, 60*time.Second, "readiness tells that no order becomes a row", func() bool {
				ready, err := send(a.client, http.MethodGet, a.url+"/readyz", "", nil)
				if err != nil {
					return false
				}
				said := decode[struct{ Checks map[string]string }](t, ready).Checks["database"]
				return said != "ok" && (mode == "async" || ready.status == http.StatusServiceUnavailable)
			})
			onMember(t, members[2], "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'")
			load.Wait()
			exact(lost, c, stock)
			until(t, 60*time.Second, "both are ready", func() bool {
				return a.status(t, "/readyz") == http.StatusOK && b.status(t, "/readyz") == http.StatusOK
			})

			// The dead come back, and are gone back to.
			members[0].Start()
			members[1].Start()
			until(t, 60*time.Second, "there are three", func() bool { return galeraStatus(t, members[0], "wsrep_cluster_size") == "3" })
			last := a.onSale(t, 100)
			c = newCrowd(a, last.ID, b)
			c.buy(t, users(a, 400_000, 150), 8)
			exact(last, c, 100)
		})
	}
}

// galeraStatus is a member's own word.
func galeraStatus(t *testing.T, member *testserver.Server, name string) (value string) {
	t.Helper()
	db, err := sql.Open("mysql", member.AdminDSN(""))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), fmt.Sprintf("SHOW STATUS LIKE '%s'", name)).Scan(&name, &value); err != nil {
		return err.Error()
	}
	return value
}

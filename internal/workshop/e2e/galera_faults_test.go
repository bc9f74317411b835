//go:build faults

//part:databases

package e2e_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// onMember runs a statement on a member, which may have no quorum.
func onMember(t *testing.T, member *testserver.Server, statement string) {
	t.Helper()
	db := check.Value(sql.Open("mysql", member.AdminDSN("")))(t)
	defer db.Close()
	_, err := db.ExecContext(t.Context(), statement)
	check.Need(t, err == nil, "%s: %v", statement, err)
}

// pair are two instances on the members of one cluster.
type pair struct {
	*app // the first one, which begins with the first member

	other *app
	mode  string
}

// onPair starts two instances, each behind a proxy of its own that has another member first.
func onPair(t *testing.T, mode string, members []*testserver.Server) pair {
	t.Helper()
	s := modes()[mode](t)
	on := func(first int) *app {
		proxy := testserver.Proxied(t, slices.Concat(members[first:], members[:first]))
		return start(t, s.with(settings{"SECKILL_DATABASE_DSN": proxy.DSN(testserver.DefaultSchema)}))
	}
	return pair{on(0), on(1), mode}
}

// exact waits until a crowd has bought a voucher, and checks that exactly the stock is sold.
func (p pair) exact(t *testing.T, voucher model.Voucher, c *crowd) {
	t.Helper()
	sold(t, p.other, voucher.ID, c.told, int(voucher.Stock))
}

// crowded lets more users than there are units buy a new voucher through both instances.
func (p pair) crowded(t *testing.T, stock, from int) (model.Voucher, *crowd, func()) {
	t.Helper()
	voucher := p.onSale(t, stock)
	c := newCrowd(p.app, voucher.ID, p.other)
	return voucher, c, c.buying(t, users(p.app, from, stock+stock/5), 16)
}

// tellsOfNoQuorum waits until readiness tells that no order becomes a row.
func (p pair) tellsOfNoQuorum(t *testing.T) {
	t.Helper()
	check.Patiently(t, "readiness tells that no order becomes a row", func() bool {
		ready, err := p.Get("/readyz")
		if err != nil {
			return false
		}
		said := remote.Decode[struct{ Checks map[string]string }](t, ready).Checks["database"]
		return said != "ok" && (p.mode == "async" || ready.Status == http.StatusServiceUnavailable)
	})
}

// TestGaleraCluster: two instances sell through two members of three, exactly, and what one has sold the other shows at
// once; a member is killed and stays dead; the quorum is lost and bootstrapped; the dead come back.
//
//nolint:paralleltest // members that suspect each other by time-outs need the machine for themselves
func TestGaleraCluster(t *testing.T) {
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			members := testserver.Galera(t, 3)
			p := onPair(t, mode, members)
			voucher, c, sale := p.crowded(t, 300, 0)
			sale()
			p.exact(t, voucher, c)

			// What was sold through one is there through the other.
			voucher = p.onSale(t, 1000)
			for n := range 300 {
				from, to := p.app, p.other
				if n%2 == 1 {
					from, to = to, from
				}
				user := from.user(100_000 + n)
				got := remote.Insist(t, user, func(int) (api.Answer, error) { return from.Place(t, voucher.ID, user) })
				check.Need(t, got.Sells(), "%s buys: %d %s", user, got.Status, got.Body)
				shown := to.Insist(t, http.MethodGet, "/orders/"+remote.Decode[model.Order](t, got).ID, to.as(t, user), nil)
				check.Equal(t, "the order, shown by the other instance", shown.Status, http.StatusOK)
			}

			// A member dies in the middle of a sale and stays dead.
			watch := p.flowing(t, p.onSale(t, 1_000_000).ID, 1, p.other.user)
			watch.moreSales(t, ordersBefore(t))
			killed := time.Now()
			voucher, c, sale = p.crowded(t, 1000, 200_000)
			c.moreSales(t, 200)
			members[0].Kill()
			sale()
			watch.moreSales(t, ordersBefore(t))
			watch.end()
			t.Logf("%s: a member dies: %v between two purchases", mode, watch.away(killed).Round(10*time.Millisecond))
			p.exact(t, voucher, c)

			// Another dies: the last one has no quorum, and says so.
			voucher, c, sale = p.crowded(t, 1000, 300_000)
			c.moreSales(t, 100)
			members[1].Kill()
			check.Patiently(t, "the last member has no quorum", func() bool {
				return galeraStatus(t, members[2], "wsrep_cluster_status") != "Primary"
			})
			p.tellsOfNoQuorum(t)
			onMember(t, members[2], "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'")
			sale()
			p.exact(t, voucher, c)
			p.ready(t)
			p.other.ready(t)

			// The dead come back, and are gone back to.
			members[0].Start()
			members[1].Start()
			check.Patiently(t, "there are three", func() bool { return galeraStatus(t, members[0], "wsrep_cluster_size") == "3" })
			voucher, c, sale = p.crowded(t, 100, 400_000)
			sale()
			p.exact(t, voucher, c)
		})
	}
}

// galeraStatus is a member's own word.
func galeraStatus(t *testing.T, member *testserver.Server, name string) (value string) {
	t.Helper()
	db := check.Value(sql.Open("mysql", member.AdminDSN("")))(t)
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), fmt.Sprintf("SHOW STATUS LIKE '%s'", name)).Scan(&name, &value); err != nil {
		return err.Error()
	}
	return value
}

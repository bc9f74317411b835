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

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
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

// crowded lets more users than there are units buy a new voucher through both instances. What it returns waits for their
// end, and checks that exactly the stock is sold.
func (p pair) crowded(t *testing.T, stock, from int) (*crowd, func()) {
	t.Helper()
	c := newCrowd(p.app, p.onSale(t, stock).ID, p.other)
	sale := c.buying(t, users(p.app, from, stock+stock/5), 16)
	return c, func() {
		sale()
		sold(t, p.other, c.voucher, c.told, stock)
	}
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

// databases are the members of a cluster.
type databases struct {
	members []*testserver.Server
	// serves tells whether a member takes writes, as another sees it.
	serves func(t *testing.T, member, seen *testserver.Server) bool
	// alone tells whether a member has given up what waits because it has no quorum.
	alone func(t *testing.T, member *testserver.Server) bool
	anew  []string // the statements of an operator who is sure that the others are dead
}

// survive has two instances sell through a cluster of three, exactly. The first member dies during a sale and stays dead,
// which is measured; so does the second: the quorum is lost, and the last one begins anew. The dead come back.
func (d databases) survive(t *testing.T, p pair) {
	first, members := d.members[0], d.members
	_, exactly := p.crowded(t, 300, 0)
	exactly()

	flows := []*flow{p.flowing(t, p.onSale(t, 100_000).ID, 3, p.user), p.other.flowing(t, p.onSale(t, 100_000).ID, 3, p.other.user)}
	goOn := func() {
		for _, f := range flows {
			f.moreSales(t, ordersBefore(t))
		}
	}
	goOn()
	killed := time.Now()
	first.Kill()
	check.Patiently(t, "another member takes writes", func() bool {
		if !d.serves(t, members[1], members[1]) {
			members[1], members[2] = members[2], members[1]
		}
		return d.serves(t, members[1], members[2])
	})
	elected := time.Now()
	goOn()
	for i, f := range flows {
		f.failedOver(t, fmt.Sprintf("%s, instance %d", p.mode, i), killed, elected)
		f.conservedFlow(t)
	}

	// Of those that are left the one dies that does not serve.
	c, exactly := p.crowded(t, 200, 300_000)
	c.moreSales(t, 20)
	lost, last := time.Now(), members[1]
	members[2].Kill()
	p.tellsOfNoQuorum(t)
	t.Logf("%s: not ready %.1f s after the quorum was lost", p.mode, time.Since(lost).Seconds())
	check.Patiently(t, "the member gives up what waits", func() bool { return d.alone(t, last) })
	for _, statement := range d.anew {
		onMember(t, last, statement)
	}
	exactly()

	members[2].Start()
	first.Start()
	p.ready(t)
	p.other.ready(t)
	check.That(t, d.serves(t, last, first), "the one that was left does not serve")
	_, exactly = p.crowded(t, 100, 400_000)
	exactly()
}

// TestGaleraCluster has two instances sell through two members of three, of which all take writes; what one has sold the
// other shows at once.
//
//nolint:paralleltest // members that suspect each other by time-outs need the machine for themselves
func TestGaleraCluster(t *testing.T) {
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			members := testserver.Galera(t, 3)
			p := onPair(t, mode, members)
			voucher := p.onSale(t, 1000)
			for n := range 300 {
				from, to := p.app, p.other
				if n%2 == 1 {
					from, to = to, from
				}
				order := from.bought(t, voucher.ID, from.user(100_000+n))
				shown := to.does(t, "GET /orders/"+order.ID, to.as(t, order.UserID), nil)
				check.Equal(t, "the order, shown by the other instance", shown.Status, http.StatusOK)
			}
			primary := func(t *testing.T, member *testserver.Server) bool {
				return galeraStatus(t, member, "wsrep_cluster_status") == "Primary"
			}
			databases{
				members: members, anew: []string{"SET GLOBAL wsrep_provider_options = 'pc.bootstrap=YES'"},
				serves: func(t *testing.T, member, _ *testserver.Server) bool { return primary(t, member) },
				alone:  func(t *testing.T, member *testserver.Server) bool { return !primary(t, member) },
			}.survive(t, p)
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

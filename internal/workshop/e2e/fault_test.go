//part:races
//part:kills
//part:mysql8

package e2e_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
)

func TestServerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	own := testserver.MariaDB(t)
	killedUnderLoad(t, own,
		start(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": own.DSN(testserver.DefaultSchema)})))
}

// killedUnderLoad kills a server that nothing is sold without, in the middle of a sale, and starts it again.
func killedUnderLoad(t *testing.T, victim *testserver.Server, a *app) {
	t.Helper()
	stock := check.Count(t, "ORDERS", 150, 600)
	voucher := a.onSale(t, stock)
	c := newCrowd(a, voucher.ID)
	sale := c.buying(t, users(a, 0, 3*stock), 16)
	c.moreSales(t, stock/10)
	victim.Kill()
	a.unready(t)
	check.Equal(t, "livez meanwhile", a.Status("/livez"), http.StatusOK)
	c.moreRefusals(t, 16)
	victim.Start()
	a.ready(t)
	sale()
	sold(t, a, voucher.ID, c.told, stock)
	t.Logf("%d × 201, %d × 503, %d without an answer", c.yes, c.refused, c.failed)
}

// SIGTERM at full load: not ready first, then everything under way is answered and kept, and the process ends well.
func TestTerminatedUnderLoad(t *testing.T) {
	t.Parallel()
	deployments := map[string]func(*testing.T) settings{"async": asyncOnServers}
	if check.Faults {
		deployments["sync"] = onServers
	}
	for mode, deployment := range deployments {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := deployment(t)
			leaving, staying := launch(t, s), start(t, s)
			stock := check.Count(t, "ORDERS", 500, 6000)
			voucher := staying.onSale(t, stock)
			c := newCrowd(leaving.app, voucher.ID, staying)
			sale := c.buying(t, users(staying, 0, stock*11/10), 12)
			c.moreSales(t, stock/10)
			leaves(t, leaving, c)
			sale()
			if mode == "sync" {
				sold(t, staying, voucher.ID, c.told, stock)
			} else {
				staying.kept(t, voucher.ID, c.promised)
				staying.sellsOn(t, voucher.ID, 2*stock)
			}
			if said := leaving.output.String(); strings.Contains(said, "left as it is at the stop") {
				t.Errorf("something hung at the stop:\n%s", tail(said, 10))
			}
		})
	}
}

// leaves terminates a program: it is unready, sells on while load balancers notice and the crowd buys, and ends well.
func leaves(t *testing.T, p *process, c *crowd) {
	t.Helper()
	check.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	told := false
	check.Eventually(t, "it says that it is not ready, or ends", func() bool {
		told = p.Status("/readyz") == http.StatusServiceUnavailable
		return told || !p.alive()
	})
	if told { // a machine that stood still may have missed the moment
		user := p.user(-1)
		if got, err := p.Place(t, c.voucher, user); remote.Again(got, err) {
			c.insist(t, user)
		} else {
			c.note(t, user, got)
		}
	}
	p.ends(t)
}

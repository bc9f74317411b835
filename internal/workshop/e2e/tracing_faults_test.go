//go:build faults

//part:packaging

package e2e_test

import (
	"encoding/hex"
	"maps"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"seckill/internal/workshop/check"
)

// Orders that were committed together are in traces of their own, and the commit is linked from each of them.
func TestAGroupCommitIsLinkedFromItsOrders(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]settings{"sync": onServers(t), "async": asyncOnServers(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := collect(t)
			a := launch(t, s.with(tracedTo(c)))
			const buyers, rounds = 40, 10
			voucher := a.onSale(t, buyers*rounds)
			for round := range rounds {
				check.Volley(buyers, func(n int) { a.bought(t, voucher.ID, a.user(round*buyers+n)) })
				orders := map[string]bool{} // the traces
				check.Eventually(t, "every order has its commit", func() bool {
					_, commits := c.commits()
					for _, commit := range commits {
						orders[hex.EncodeToString(commit.GetTraceId())] = true
					}
					return len(orders) >= (round+1)*buyers
				})
				if c.shared(t) {
					return
				}
			}
			t.Errorf("no two of %d orders were committed together", buyers*rounds)
		})
	}
}

// commits are the spans of all groups and of all orders.
func (c *collecting) commits() (groups, orders []*tracepb.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, spans := range c.traces {
		for _, span := range spans {
			switch span.GetName() {
			case "commit group":
				groups = append(groups, span)
			case "commit":
				orders = append(orders, span)
			}
		}
	}
	return groups, orders
}

// shared looks for a commit of several orders, each of which names it and is linked from it.
func (c *collecting) shared(t *testing.T) bool {
	t.Helper()
	groups, orders := c.commits()
	several := false
	for _, group := range groups {
		linked, naming := map[string]bool{}, map[string]bool{}
		for _, link := range group.GetLinks() {
			linked[hex.EncodeToString(link.GetTraceId())] = true
		}
		for _, order := range orders {
			if about(order, "seckill.group.span_id") == hex.EncodeToString(group.GetSpanId()) {
				naming[hex.EncodeToString(order.GetTraceId())] = true
			}
		}
		if len(naming) != len(linked) {
			t.Errorf("a commit is linked with %d traces, and %d name it", len(linked), len(naming))
		}
		for trace := range naming {
			if !linked[trace] {
				t.Errorf("the order of the trace %s names a commit that is not linked with it", trace)
			}
		}
		several = several || len(linked) > 1
	}
	return several
}

// What is done behind the requests is in traces of its own, with what it asked the database.
func TestExpiryIsATraceOfItsOwn(t *testing.T) {
	t.Parallel()
	c := collect(t)
	a := launch(t, onServers(t).with(tracedTo(c)).with(settings{"SECKILL_PAYMENT_WINDOW": "1s"}))
	voucher := a.onSale(t, 5)
	user := a.user(1)
	a.buysTraced(t, voucher.ID, user)
	check.Eventually(t, "the expiry with its commit", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, spans := range c.traces {
			names := map[string]bool{}
			for _, span := range spans {
				names[span.GetName()] = len(span.GetParentSpanId()) == 0 || span.GetName() != "expire"
			}
			if names["expire"] && names["sql.tx.commit"] {
				return true
			}
		}
		return false
	})
	c.tellsNothing(t, user)
}

// A collector that hangs neither refuses nor delays an order, nor the stop.
func TestACollectorThatHangsCostsNoOrder(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	asked := make(chan struct{}, 1000)
	hung := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-release
	}))
	t.Cleanup(hung.Close)
	t.Cleanup(func() { close(release) })
	a := launch(t, asyncOnServers(t).with(tracedTo(&collecting{url: hung.URL})))
	voucher := a.onSale(t, 60)
	promised := a.buysAll(t, voucher.ID, users(a.app, 0, 1))
	check.Receive(t, "an export", asked)
	maps.Copy(promised, a.buysAll(t, voucher.ID, users(a.app, 1, 59)))
	a.kept(t, voucher.ID, promised)
	check.Must(t, a.cmd.Process.Signal(syscall.SIGTERM))
	a.ends(t)
}

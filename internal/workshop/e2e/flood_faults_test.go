//go:build faults

//part:siege

package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// TestLoginsDoNotStopTheSale sells while loops try passwords, from one address and from many: every purchase succeeds.
func TestLoginsDoNotStopTheSale(t *testing.T) {
	t.Parallel()
	p := launch(t, onServers(t))
	const loops, purchases = 64, 200
	voucher := p.onSale(t, 2*purchases)
	one := p.elsewhere(t)
	many := make([]*app, loops)
	for n := range many {
		many[n] = p.elsewhere(t)
	}
	for round, from := range []func(loop int) *app{func(int) *app { return one }, func(loop int) *app { return many[loop] }} {
		var tried, refused atomic.Int64
		stop := meanwhile(loops, func(loop, n int) {
			body := map[string]string{"username": fmt.Sprintf("user%d.%d", loop, n), "password": "wrong horse " + strconv.Itoa(n)}
			switch got, err := from(loop).Send(http.MethodPost, "/auth/login", "", body); {
			case err != nil:
				t.Errorf("guess: %v", err)
			case got.Status == http.StatusUnauthorized:
				tried.Add(1)
			default:
				stayAway(t, got)
				refused.Add(1)
			}
		})
		check.Eventually(t, "the flood is refused", func() bool { return refused.Load() > 0 })
		for n := range purchases {
			p.buys(t, voucher.ID, p.user(round*purchases+n))
		}
		stop()
		t.Logf("%d passwords tried, %d refused", tried.Load(), refused.Load())
	}
}

// TestWaitsAreBounded: the database is away, and one user waits for one order over many connections. A few may wait;
// the others are told so. Who hangs up leaves room.
func TestWaitsAreBounded(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnDatabase(t)
	a := start(t, s)
	voucher := a.onSale(t, 20)
	a.becomes(t, a.accepted(t, voucher.ID, a.user(0)), model.OrderUnpaid)
	own.Kill()
	order := a.accepted(t, voucher.ID, a.user(1))
	token := a.as(t, order.UserID)

	const all, few = 60, 8
	hungUp, hangUp := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	var refused, waited atomic.Int64
	for range all {
		waiting.Go(func() {
			for hungUp.Err() == nil {
				got, err := api.Send(hungUp, a.Client, http.MethodGet, a.URL+"/api/v1/orders/"+order.ID+"?wait=30s", token, nil)
				if err != nil {
					return // hung up
				}
				if got.Status != http.StatusTooManyRequests {
					waited.Add(1) // a machine that stood still for so long
					continue
				}
				refused.Add(1)
				check.That(t, got.Header.Get("Retry-After") != "", "429 without Retry-After: %v", got.Header)
				return
			}
		})
	}
	defer waiting.Wait()
	defer hangUp()
	check.Eventually(t, "those that are too many are refused", func() bool { return refused.Load() >= all-few })
	n := refused.Load()
	check.That(t, waited.Load() != 0 || n == all-few, "%d were refused, want %d", n, all-few)
	hangUp()
	waiting.Wait()
	check.Eventually(t, "there is room again", func() bool {
		got := a.Call(t, http.MethodGet, "/orders/"+order.ID+"?wait=1ms", token, nil)
		return got.Status == http.StatusOK && remote.Decode[model.Order](t, got).Status == model.OrderProcessing
	})
	own.Start()
	a.becomes(t, order, model.OrderUnpaid)
}

// withDescriptors makes a program that may have so many files open, connections among them.
func withDescriptors(t *testing.T, program string, descriptors int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seckill")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", descriptors, program)
	check.Must(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}

// TestFewDescriptorsAnswerEverybody: a crowd with many times as many connections as the process has descriptors is told
// at the worst to come again, each of it, and the descriptors that the servers and files of a sale need are left to
// them.
func TestFewDescriptorsAnswerEverybody(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]settings{"embedded": embeddedSettings(t), "on servers": onServers(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := prepare(t, withDescriptors(t, testserver.Program(t), 96), s)
			p.serves(t)
			voucher := p.onSale(t, 1000)
			p.Client.CloseIdleConnections()
			const crowd = 900
			answers := make([]string, crowd)
			check.Volley(crowd, func(n int) {
				got, err := p.Place(t, voucher.ID, p.user(n))
				if answers[n] = strconv.Itoa(got.Status); err != nil {
					answers[n] = err.Error()
				}
			})
			p.Client.CloseIdleConnections()
			counted := map[string]int{}
			for _, answer := range answers {
				counted[answer]++
			}
			t.Logf("%v", counted)
			check.Equal(t, "answers of 201 and 503", counted["201"]+counted["503"], crowd)
			check.That(t, counted["201"] > 0, "nobody has bought: %v", counted)
			check.Eventually(t, "it is ready", func() bool { return p.Status("/readyz") == http.StatusOK })
			check.Equal(t, "the start tells of it", p.output.Has("connections of clients are bounded", "descriptors", "96"), true)
		})
	}
}

// TestDrippingHeadersAreCut: a request whose header arrives byte by byte has some seconds for it.
func TestDrippingHeadersAreCut(t *testing.T) {
	t.Parallel()
	a := start(t, embeddedSettings(t))
	c := check.Value((&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(a.URL, "http://")))(t)
	defer c.Close()
	check.Value(c.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ")))(t)
	check.Eventually(t, "the connection is cut", func() bool {
		_, err := c.Write([]byte("a"))
		return err != nil
	})
}

// TestListsHoldNoConnectionOfSales: every connection of lists waits for the database. A purchase does not, and one more
// list is told in time to come again.
func TestListsHoldNoConnectionOfSales(t *testing.T) {
	t.Parallel()
	server := testserver.MariaDB(t)
	w := newWire(t, server.Addr())
	a := start(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": "seckill@tcp(" + w.addr() + ")/" + testserver.DefaultSchema}))
	voucher := a.onSale(t, 20)
	admin := a.Admin(t)
	for range 4 { // as many as there are for lists
		came, release := w.holdAt(down, "FORCE INDEX (vouchers_")
		defer release()
		a.later(t, http.MethodGet, "/admin/vouchers", admin)
		check.Receive(t, "a list at the database", came)
	}
	further := a.later(t, http.MethodGet, "/vouchers", "")
	for n := range 5 {
		a.buys(t, voucher.ID, a.user(n))
	}
	if got := check.Receive(t, "the answer to one list more", further); got.Status != http.StatusServiceUnavailable || got.Code() != model.CodeUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("one list more: %d %s", got.Status, got.Body)
	}
	// The held ones end by themselves, and lists are read again.
	check.Eventually(t, "lists are read again", func() bool {
		return a.Call(t, http.MethodGet, "/admin/vouchers", admin, nil).Status == http.StatusOK
	})
}

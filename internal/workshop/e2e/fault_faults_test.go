//go:build faults

//part:kills

package e2e_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// pause stops the program in its tracks, and returns when each of its threads stands still.
func (p *process) pause(t testing.TB) {
	t.Helper()
	check.Must(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	check.Eventually(t, "the program stands still", func() bool {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		return err == nil && status.Stopped()
	})
}

// Neither a client that never finishes its request, nor a profile that runs, nor a database that hangs keeps a stop
// from ending.
func TestTerminatedWhileEverythingHangs(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	a := launch(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema)}))
	voucher := a.onSale(t, 10)
	address := strings.TrimPrefix(a.URL, "http://")
	stalled := check.Value(net.Dial("tcp", address))(t)
	defer stalled.Close()
	check.Value(fmt.Fprintf(stalled, "POST /api/v1/auth/login HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", address))(t)
	ended := make(chan struct{}, 2) // both are cut off
	go func() {
		_, _ = api.Send(t.Context(), a.Client, http.MethodGet, a.ops+"/debug/pprof/profile?seconds=25", "", nil)
		ended <- struct{}{}
	}()
	database.Pause()
	defer database.Resume()
	go func() {
		_, _ = a.Place(t, voucher.ID, a.user(1))
		ended <- struct{}{}
	}()
	check.Eventually(t, "the profile runs", func() bool {
		got, err := api.Send(t.Context(), a.Client, http.MethodGet, a.ops+"/debug/pprof/goroutine?debug=1", "", nil)
		return err == nil && strings.Contains(string(got.Body), "pprof.Profile")
	})
	a.stops(t)
	for range cap(ended) {
		check.Receive(t, "the end of a request", ended)
	}
}

// The instance that is elected to consume stands still. The other one persists what is bought then, before it is
// elected itself, and what the queue has handed to the first one when that one's time is over. The chance decides what
// is handed to it, and who is elected meanwhile: it is stopped until both were seen. What it then goes on with does no
// harm.
func TestAStoppedLeaderKeepsNoOrder(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	front := start(t, s.role("api"))
	workers := []*process{launch(t, s.role("worker")), launch(t, s.role("worker"))}
	elected := func(p *process) bool { return p.metric(t, `seckill_elected{job="reconciler"}`) == 1 }
	redelivered := func(p *process) float64 { return p.metric(t, `seckill_queue_messages_total{result="redelivered"}`) }
	voucher := front.onSale(t, 10_000)
	promised, helped, handed := map[string]string{}, false, false
	check.Patiently(t, "the other one has helped, and taken over", func() bool {
		check.Patiently(t, "one is elected", func() bool { return elected(workers[0]) != elected(workers[1]) })
		if elected(workers[1]) {
			slices.Reverse(workers)
		}
		leader, other, stopped, before := workers[0], workers[1], map[string]string{}, redelivered(workers[1])
		leader.pause(t)
		check.Patiently(t, "an order is persisted", func() bool {
			maps.Copy(stopped, front.buysAll(t, voucher.ID, users(front, len(promised)+len(stopped), 1)))
			orders := front.orders(t, voucher.ID)
			return slices.ContainsFunc(sorted(stopped), func(id string) bool { return orders[id].ID != "" })
		})
		helped = helped || !elected(other)
		for id, user := range stopped {
			front.becomes(t, model.Order{ID: id, UserID: user}, model.OrderUnpaid)
		}
		handed = handed || redelivered(other) > before
		maps.Copy(promised, stopped)
		check.Must(t, leader.cmd.Process.Signal(syscall.SIGCONT)) // it goes on with what it had in hand
		t.Logf("%d orders; before it was elected: %t, redelivered: %t", len(stopped), helped, handed)
		return helped && handed
	})
	front.kept(t, voucher.ID, promised)
}

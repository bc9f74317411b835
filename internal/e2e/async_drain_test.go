package e2e_test

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"seckill/model"

	"seckill/internal/testserver"
)

const (
	// drainMemory is what a worker may take at most, however long the queue is.
	drainMemory = 300 << 20
	// drainRate is what a worker does on two cores, which it shares with all
	// servers. It is asked for in the long version, on a quiet machine.
	drainRate = 20_000
	// drainLong is from which number of orders on the rate is asked for: a
	// shorter queue is drained before everything is warm.
	drainLong = 100_000
)

// One worker drains a queue that has grown while it was away. Long version:
// make drain.
//
//nolint:paralleltest // what it measures is not for a machine that is busy with other tests
func TestWorkerDrainsALongQueue(t *testing.T) {
	orders := count(t, "DRAIN_ORDERS", 10_000)
	_, s := asyncOnOwnServers(t)
	s["SECKILL_BACKLOG_MAX_AGE"] = "1h"
	api := launch(t, s.with(settings{"SECKILL_ROLE": "api"}))
	voucher := api.onSale(t, orders+10)
	c := newCounterfeiter(t, s)
	fill(t, c, api.app, voucher.ID, orders)

	queued := api.audit(t, voucher.ID)
	if queued.Queue == nil || queued.Queue.Pending == 0 || queued.Queue.OldestAgeMS <= 0 || queued.Redis.Reserved != int64(orders) {
		t.Errorf("the audit does not show what is queued: %+v %+v", queued.Redis, queued.Queue)
	}
	until(t, 5*time.Second, "the metrics show that orders are waiting", func() bool {
		return api.metric(t, `seckill_\w*backlog\w*age\w*`) > 0 // as of the latest look at the queue
	})

	worker := prepare(t, api.path, s.with(settings{"SECKILL_ROLE": "worker"}))
	began := time.Now()
	worker.start(t)
	c.drained(t, 5*time.Minute)
	took := time.Since(began) // the start of the process included
	if sold := stats(t, api.app, voucher.ID).Sold; sold != int64(orders) {
		t.Errorf("%d orders are persisted, want %d", sold, orders)
	}
	rate := float64(orders) / took.Seconds()
	peak := testserver.PeakMemory(t, worker.cmd.Process.Pid)
	t.Logf("%d orders in %v: %.0f orders/s, %d MiB at most", orders, took, rate, peak>>20)
	if peak > drainMemory {
		t.Errorf("the worker took %d MiB, more than %d MiB", peak>>20, drainMemory>>20)
	}
	if orders >= drainLong && rate < drainRate {
		t.Errorf("%.0f orders/s, want %d", rate, drainRate)
	}
	audit := api.quiet(t, voucher.ID, settlement)
	if audit.Database.LiveOrders != int64(orders) || audit.Queue.OldestAgeMS != 0 {
		t.Errorf("after the drain: %+v %+v", audit.Database, audit.Queue)
	}
	api.accepted(t, voucher.ID, api.user(-1))
}

// fill queues orders with their reservations, two writers at a time.
func fill(t *testing.T, c counterfeiter, a *app, voucherID string, orders int) {
	t.Helper()
	until(t, 10*time.Second, "the hot copy is open", func() bool { return a.audit(t, voucherID).Redis.State == string(model.CopyOpen) })
	chunks := make(chan []string)
	var writers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for chunk := range chunks {
				c.publish(t, c.reserveAll(t, voucherID, chunk)...)
			}
		})
	}
	for chunk := range slices.Chunk(users(a, 0, orders), 500) {
		chunks <- chunk
	}
	close(chunks)
	writers.Wait()
}

// drained waits until nothing is queued. It asks the queue, and not too often: to
// count rows would cost the database more than to write them.
func (c counterfeiter) drained(t *testing.T, within time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(within); ; {
		backlog, err := c.queue.Backlog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if backlog.Messages == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not drained within %v: %+v", within, backlog)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func stats(t *testing.T, a *app, voucherID string) model.Stats {
	t.Helper()
	got := a.call(t, http.MethodGet, "/admin/vouchers/"+voucherID+"/stats", a.admin(t), nil)
	if got.status != http.StatusOK {
		t.Fatalf("stats: %d %s", got.status, got.body)
	}
	return decode[model.Stats](t, got)
}

// metric reads one number from the metrics, whatever its labels.
func (a *app) metric(t *testing.T, name string) float64 {
	t.Helper()
	got, err := send(a.client, http.MethodGet, a.ops+"/metrics", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindSubmatch(got.body)
	if line == nil {
		t.Fatalf("no metric is named %s", name)
	}
	value, err := strconv.ParseFloat(string(line[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

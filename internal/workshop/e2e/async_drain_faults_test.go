//go:build faults

//part:queue

package e2e_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// drainMemory is what a worker may take at most, however long the queue is.
const drainMemory = 300 << 20

// One worker drains a queue that has grown while it was away. How fast it does is logged.
func TestWorkerDrainsALongQueue(t *testing.T) {
	t.Parallel()
	orders := check.Count(t, "DRAIN_ORDERS", 10_000, 50_000)
	s := asyncOnServers(t)
	s["SECKILL_BACKLOG_MAX_AGE"] = "1h"
	front := start(t, s.role("api"))
	voucher := front.onSale(t, orders+10)
	c := newCounterfeiter(t, s)
	fill(t, c, front, voucher.ID, orders)

	queued := front.Audit(t, voucher.ID)
	if queued.Queue == nil || queued.Queue.Pending == 0 || queued.Queue.OldestAgeMS <= 0 || queued.Redis.Reserved != int64(orders) {
		t.Errorf("the audit does not show what is queued: %+v %+v", queued.Redis, queued.Queue)
	}
	check.Eventually(t, "the metrics show that orders are waiting", func() bool {
		return front.metric(t, `seckill_\w*backlog\w*age\w*`) > 0 // as of the latest look at the queue
	})

	worker := prepare(t, testserver.Program(t), s.role("worker"))
	began := time.Now()
	worker.start(t)
	check.Patiently(t, "the queue is drained", func() bool { return check.Value(c.queue.Backlog(t.Context()))(t).Messages == 0 })
	took := time.Since(began) // the start of the process included
	check.Equal(t, "orders that are persisted", stats(t, front, voucher.ID).Sold, int64(orders))
	peak := testserver.PeakMemory(t, worker.cmd.Process.Pid)
	t.Logf("%d orders in %v: %.0f orders/s, %d MiB at most", orders, took, float64(orders)/took.Seconds(), peak>>20)
	if peak > drainMemory {
		t.Errorf("the worker took %d MiB, more than %d MiB", peak>>20, drainMemory>>20)
	}
	audit := front.quiet(t, voucher.ID)
	if audit.Database.LiveOrders != int64(orders) || audit.Queue.OldestAgeMS != 0 {
		t.Errorf("after the drain: %+v %+v", audit.Database, audit.Queue)
	}
	front.accepted(t, voucher.ID, front.user(-1))
}

// fill queues orders with their reservations, two writers at a time.
func fill(t *testing.T, c counterfeiter, a *app, voucherID string, orders int) {
	t.Helper()
	a.opens(t, voucherID)
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

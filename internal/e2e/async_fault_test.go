package e2e_test

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/model"
)

// A worker stands still for longer than its messages wait for it, in the middle
// of a rush, and then goes on with what it had in hand: others have persisted it
// meanwhile.
func TestPausedWorkerDoesNoHarm(t *testing.T) {
	t.Parallel()
	const paused = 8 * time.Second // above the queue's patience with a worker
	s := asyncOnServers(t)
	api := launch(t, s.with(settings{"SECKILL_ROLE": "api"}))
	worker := launch(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	launch(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	voucher := api.onSale(t, 3000)
	c := newCrowd(api.app, voucher.ID)
	var load sync.WaitGroup
	load.Go(func() { c.buy(t, users(api.app, 0, 3500), 8) })
	c.moreSales(t, 200)
	if err := worker.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goesOn := time.After(paused)
	load.Wait() // promises go on; what the worker had in hand waits
	<-goesOn
	if err := worker.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	unbroken(t, api.conserved(t, voucher.ID, c.promised), c.promised)
	api.sellsOn(t, voucher.ID, 4000)
}

// A worker stands still while it holds the voucher's row in a transaction: the
// database ends that, and another persists the orders.
func TestWorkerPausedWithTheHotRowDoesNoHarm(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	w, throughWire := throughDatabase(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	api := start(t, s.with(settings{"SECKILL_ROLE": "api"}))
	start(t, throughWire)
	voucher := api.onSale(t, 10)
	came, release := w.holdAt(up, api.user(1), "COMMIT")
	defer release()
	order := api.accepted(t, voucher.ID, api.user(1))
	happens(t, "the COMMIT", came)
	start(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	api.becomes(t, order, model.OrderUnpaid)
	release() // into a transaction that is over
	if orders := api.conserved(t, voucher.ID, map[string]string{order.ID: order.UserID}); len(orders) != 1 {
		t.Errorf("%d orders, want 1", len(orders))
	}
	api.sellsOn(t, voucher.ID, 100)
}

// Redis is full, forgets its scripts, and loses answers. Who buys meanwhile gets
// what he is promised, or 503.
func TestRedisInTrouble(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnServers(t)
	w := newWire(t, own.redis.Addr())
	s["SECKILL_REDIS_URL"] = "redis://" + w.addr() + "/0"
	a := launch(t, s)
	voucher := a.onSale(t, 2000)
	c := newCrowd(a.app, voucher.ID)
	var load sync.WaitGroup
	load.Go(func() { c.buy(t, users(a.app, 0, 2300), 8) })
	direct := redis.NewClient(&redis.Options{Addr: own.redis.Addr()})
	defer direct.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, trouble := range []func(){
		func() { must(direct.ScriptFlush(t.Context()).Err()) },
		w.cut,
		func() {
			must(direct.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
			until(t, 10*time.Second, "clients hear 503", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.refused > 8
			})
			must(direct.ConfigSet(t.Context(), "maxmemory", "512mb").Err())
		},
		func() {
			release := w.hold(down)
			<-time.After(200 * time.Millisecond)
			release()
		},
	} {
		c.moreSales(t, 100)
		trouble()
	}
	load.Wait()
	unbroken(t, a.conserved(t, voucher.ID, c.promised), c.promised)
	a.sellsOn(t, voucher.ID, 3000)
	t.Logf("%d × 202, %d × 503", c.yes, c.refused)
}

// SIGTERM at full load: not ready first, then everything under way is answered
// and kept, and the process ends in time.
func TestTerminatedUnderAsyncLoad(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	staying := launch(t, s)
	testserver.Undisturbed(t, 200*time.Millisecond, func() error { return terminatedUnderAsyncLoad(t, launch(t, s), staying) })
}

func terminatedUnderAsyncLoad(t *testing.T, leaving, staying *process) error {
	t.Helper()
	voucher := leaving.onSale(t, 6000)
	c := newCrowd(leaving.app, voucher.ID, staying.app)
	var load sync.WaitGroup
	load.Go(func() { c.buy(t, users(leaving.app, 0, 6500), 12) })
	c.moreSales(t, 300)
	err := leaves(t, leaving, voucher.ID)
	load.Wait()
	unbroken(t, staying.conserved(t, voucher.ID, c.promised), c.promised)
	staying.sellsOn(t, voucher.ID, 7000)
	if said := leaving.output.String(); err == nil && strings.Contains(said, "left as it is at the stop") {
		err = fmt.Errorf("something hung at the stop:\n%s", tail(said, 10))
	}
	return err
}

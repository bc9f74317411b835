//go:build engines

package e2e_test

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

const (
	// stalled is how long the sale may stand still when a server is silent without being dead: until the instance that is
	// connected to it has missed its pings (3 s at the most, see queue/connect.go), or the others have elected a leader.
	stalled = 9 * time.Second
	// longPause outlasts that.
	longPause = 20 * time.Second
)

// TestNATSCluster: two instances sell two vouchers through three servers. The leader dies. Its server is replaced by one
// with an empty disk. The next leader dies, and comes back. The leader after that is paused, and so is one that follows.
//
//nolint:paralleltest // three servers that elect leaders by time-outs need the machine for themselves
func TestNATSCluster(t *testing.T) {
	servers, _, s := onThree(t)
	instances := []*app{launch(t, s).app, launch(t, s).app}
	stream := ordersStream(t, s)
	flows := make([]*flow, len(instances))
	for i, a := range instances {
		flows[i] = a.flowing(t, a.onSale(t, 1_000_000).ID, 4, a.user)
	}
	sell := func() {
		t.Helper()
		for _, f := range flows {
			f.sold(t, ordersBefore(t))
		}
	}
	whole := func() {
		t.Helper()
		until(t, settlement, "all three have all of it", func() bool { return servers.Current(t, stream) })
	}
	sell()

	dead := killLeader(t, servers, stream, flows...)
	servers[dead].ClearData()
	servers[dead].Start()
	whole()
	t.Log("its server was replaced by one with an empty disk")
	servers[killLeader(t, servers, stream, flows...)].Start()
	whole()

	for _, leads := range []bool{true, false} {
		i := servers.Leader(t, stream)
		if i < 0 {
			t.Fatal("the stream has no leader")
		}
		if !leads {
			i = (i + 1) % len(servers)
		}
		paused := time.Now()
		servers[i].Pause()
		<-time.After(longPause) // the pause is what is tested
		servers[i].Resume()
		sell()
		for n, f := range flows {
			took := f.away(paused)
			t.Logf("a server is paused for %v (it leads: %t), voucher %d: refused for %.1f s", longPause, leads, n, took.Seconds())
			if took > stalled+riddenOut {
				t.Errorf("voucher %d was refused for %v, want %v", n, took, stalled+riddenOut)
			}
		}
		whole()
	}
	for _, f := range flows {
		f.conservedFlow(t)
	}
	check.Equal(t, "orders that wait in the queue", instances[0].audit(t, flows[0].voucher).Queue.Pending, 0)
}

// The queue loses everything while all that was promised is in it and no worker has seen it, as three servers do whose
// disks are all gone. Redis knows what was reserved: it is published again as soon as somebody has made the stream anew,
// which every start does.
func TestAQueueWithoutItsDisksLosesNoOrder(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnServers(t)
	a := launch(t, s.with(settings{"SECKILL_ROLE": "api", "SECKILL_BACKLOG_MAX_AGE": "1h"}))
	voucher := a.onSale(t, 30)
	promised := map[string]string{}
	for n := range 10 {
		order := a.accepted(t, voucher.ID, a.user(n))
		promised[order.ID] = order.UserID
	}
	own.nats.Kill()
	own.nats.ClearData()
	own.nats.Start()
	launch(t, s.with(settings{"SECKILL_ROLE": "worker"}))
	unbroken(t, a.conserved(t, voucher.ID, promised), promised)
	a.sellsOn(t, voucher.ID, 100)
}

//go:build faults

//part:clusters

package e2e_test

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
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
		check.Patiently(t, "all three have all of it", func() bool { return servers.Current(t, stream) })
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
		// It is silent without being dead: its instance misses its pings, or the others elect a leader.
		sell()
		for n, f := range flows {
			t.Logf("a server is paused (it leads: %t), voucher %d: refused for %.1f s", leads, n, f.away(paused).Seconds())
		}
		servers[i].Resume()
		whole()
	}
	for _, f := range flows {
		f.conservedFlow(t)
	}
	check.Equal(t, "orders that wait in the queue", instances[0].Audit(t, flows[0].voucher).Queue.Pending, 0)
}

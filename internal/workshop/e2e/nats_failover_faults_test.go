//go:build faults

//part:clusters

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// onThree is a deployment whose accepted orders are kept by three NATS servers together, and whose Redis no other test has.
func onThree(t *testing.T) (testserver.NATSServers, *testserver.Server, settings) {
	t.Helper()
	servers, redis := testserver.NATSCluster(t), testserver.Redis(t)
	return servers, redis, onServers(t).with(settings{
		"SECKILL_ORDER_MODE":    "async",
		"SECKILL_REDIS_URL":     redis.URL(),
		"SECKILL_NATS_URL":      servers.URL(),
		"SECKILL_NATS_REPLICAS": "3",
	})
}

// killLeader kills the leader of a stream while vouchers are sold, and waits until another is elected and all of them sell.
// It returns which server is dead.
func killLeader(t *testing.T, servers testserver.NATSServers, stream string, flows ...*flow) int {
	t.Helper()
	leader := servers.Leader(t, stream)
	if leader < 0 {
		t.Fatal("the stream has no leader")
	}
	killed := time.Now()
	servers[leader].Kill()
	check.Eventually(t, "the stream has another leader", func() bool {
		next := servers.Leader(t, stream)
		return next >= 0 && next != leader
	})
	elected := time.Now()
	for _, f := range flows {
		f.sold(t, ordersBefore(t))
	}
	for i, f := range flows {
		f.failedOver(t, fmt.Sprint("voucher ", i), killed, elected)
	}
	return leader
}

// The leader of the queue dies during a sale of two vouchers, and stays dead. No worker runs yet and Redis then forgets
// everything, so that what was promised is in the queue alone: all of it becomes orders. More waits there than one fetch
// of a worker takes. (A fetch that was bounded by bytes as well brought nothing from three replicas.)
func TestTheLeaderOfTheQueueDies(t *testing.T) {
	t.Parallel()
	servers, redis, s := onThree(t)
	front := start(t, s.with(settings{"SECKILL_ROLE": "api", "SECKILL_BACKLOG_MAX_AGE": "1h"}))
	stream := ordersStream(t, s)
	flows := make([]*flow, 2)
	for i := range flows {
		flows[i] = front.flowing(t, front.onSale(t, 100_000).ID, 3, front.user)
	}
	for _, f := range flows {
		f.sold(t, max(ordersBefore(t), 300))
	}
	killLeader(t, servers, stream, flows...)
	for _, f := range flows {
		f.end()
	}
	flush(t, redis)
	start(t, s.role("worker"))
	for _, f := range flows {
		f.conservedFlow(t)
	}
}

// The script in deployments/engines starts three servers that the product sells through.
func TestTheEngineOfNATSStarts(t *testing.T) {
	t.Parallel()
	script, home := "../../../deployments/engines/nats-r3/run", filepath.Join(t.TempDir(), "engine")
	t.Cleanup(func() {
		if said, err := exec.CommandContext(context.Background(), script, "stop", home).CombinedOutput(); err != nil {
			t.Errorf("stop: %v\n%s", err, said)
		}
	})
	starting, why := exec.CommandContext(t.Context(), script, "start", home), new(strings.Builder)
	starting.Env = append(os.Environ(), "NATS_SERVER="+testserver.NATSProgram(t))
	starting.Stderr = why
	said, err := starting.Output()
	if err != nil {
		t.Fatalf("start: %v\n%s%s", err, said, why)
	}
	a := start(t, asyncOnServers(t).with(settings{
		"SECKILL_NATS_URL": strings.TrimSpace(string(said)), "SECKILL_NATS_REPLICAS": "3",
	}))
	voucher := a.onSale(t, 1)
	a.becomes(t, a.accepted(t, voucher.ID, a.user(1)), model.OrderUnpaid)
}

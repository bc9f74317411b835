//go:build faults

//part:clusters

package e2e_test

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// shortElection is the silence, in ms, after which the engines of these tests replace a primary. In production it
// is longer: on a busy machine a living primary is silent for so long too.
const shortElection = "2000"

// ordersBefore is how many orders each voucher has sold before something happens to Redis, and sells behind it.
func ordersBefore(t *testing.T) int {
	t.Helper()
	return check.Count(t, "ORDERS", 60, 60)
}

// failovers are sales in both order modes.
func failovers(t *testing.T) map[string]func(*testing.T) settings {
	t.Helper()
	return map[string]func(*testing.T) settings{"sync": onServers, "async": asyncOnServers}
}

// A primary of a Cluster dies during a sale and stays dead. The vouchers and users on the other two notice nothing. Its
// own sell on as soon as its replica has taken its place. What was promised is kept, and nothing is sold twice.
func TestAPrimaryOfARedisClusterDies(t *testing.T) {
	t.Parallel()
	for mode, on := range failovers(t) {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cluster := testserver.RedisCluster(t, true, "--cluster-node-timeout", shortElection, "--appendonly", "no")
			a := start(t, on(t).with(settings{"SECKILL_REDIS_URL": cluster.URL()}))
			where := newPartition(t, cluster.Primaries)
			flows := make([]*flow, len(cluster.Primaries))
			for i := range flows {
				flows[i] = a.flowing(t, where.voucherOn(t, a, i, 100_000).ID, 3, where.usersOn(t, a, i))
			}
			for _, f := range flows {
				f.sold(t, ordersBefore(t))
			}
			killed := time.Now()
			cluster.Primaries[0].Kill()
			check.Eventually(t, "the replica is promoted", func() bool { return testserver.Primary(t, cluster.Replicas[0]) })
			elected := time.Now()
			flows[0].sold(t, ordersBefore(t))
			a.ready(t)
			flows[0].failedOver(t, "node 0", killed, elected)
			for i, f := range flows[1:] {
				yes, no := f.between(killed, elected)
				t.Logf("flow %d during the election: %d accepted, %d refused", i+1, yes, no)
				if yes == 0 || no*5 > yes+no {
					t.Errorf("of the users and the voucher of flow %d %d were accepted and %d refused", i+1, yes, no)
				}
			}
			for _, f := range flows {
				f.conservedFlow(t)
			}
		})
	}
}

// The primary through which instances hear of returned units is away. Whoever has bought one of them elsewhere is told so
// all the same.
func TestOwnersAreToldThoughNewsIsLost(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false)
	on := asyncOnServers(t).with(settings{"SECKILL_REDIS_URL": cluster.URL()})
	here, there := start(t, on), start(t, on)
	where := newPartition(t, cluster.Primaries)
	news := where.of(t, "seckill:v1:voucher-changes")
	sells := (news + 1) % len(cluster.Primaries)
	v, users := where.voucherOn(t, here, sells, 1), where.usersOn(t, here, sells)
	asks := func(a *app, user string, want model.Code) {
		t.Helper()
		got := a.Insist(t, http.MethodPost, "/vouchers/"+v.ID+"/seckill", a.Token(t, user, model.RoleUser), nil)
		if got.Code() != want {
			t.Errorf("%s buys: %d %s, want %s", user, got.Status, got.Body, want)
		}
	}
	owner := here.buys(t, v.ID, users(0))
	cluster.Primaries[news].Kill()
	for n := 1; n < 10; n++ {
		asks(there, users(n), model.CodeSoldOut) // which this instance remembers
		here.cancels(t, owner)
		owner = here.buys(t, v.ID, users(n))
		asks(there, users(n), model.CodeAlreadyOrdered)
	}
}

// The primary behind Sentinels dies during a sale and stays dead.
func TestThePrimaryOfRedisSentinelsDies(t *testing.T) {
	t.Parallel()
	for mode, on := range failovers(t) {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			sentinels := testserver.RedisSentinels(t, testserver.UntilDown, "--appendonly", "no")
			a := start(t, on(t).with(settings{"SECKILL_REDIS_URL": sentinels.URL()}))
			f := a.flowing(t, a.onSale(t, 100_000).ID, 4, a.user)
			f.sold(t, ordersBefore(t))
			sentinels.Settle(t)
			killed := time.Now()
			replacePrimary(t, sentinels)
			elected := time.Now()
			f.sold(t, ordersBefore(t))
			f.failedOver(t, "behind Sentinels", killed, elected)
			f.conservedFlow(t)
		})
	}
}

// replacePrimary kills the primary, and returns when the Sentinels name another one that takes writes.
func replacePrimary(t *testing.T, sentinels *testserver.Sentinels) {
	t.Helper()
	sentinels.Primary.Kill()
	sentinels.AwaitPromotion(t)
	check.Eventually(t, "the Sentinels have a new primary", func() bool { return sentinels.Elected(t) })
}

// A slot is moved to another node while its voucher is sold.
func TestASlotOfALiveVoucherMoves(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no")
	a := start(t, asyncOnServers(t).with(settings{"SECKILL_REDIS_URL": cluster.URL()}))
	v := a.onSale(t, 100_000)
	f := a.flowing(t, v.ID, 4, a.user)
	f.sold(t, ordersBefore(t))
	key := "{" + v.ID + "}"
	moved := time.Now()
	cluster.Move(t, key, (cluster.Owner(t, key)+1)%len(cluster.Primaries))
	took := time.Since(moved)
	f.sold(t, ordersBefore(t))

	t.Logf("moved within %.2f s, refused for %.2f s", took.Seconds(), f.away(moved).Seconds())
	f.conservedFlow(t)
}

// The scripts in deployments/engines start engines that the product sells from.
func TestTheEnginesOfRedisStart(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"redis-cluster", "redis-sentinel"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			script, home := "../../../deployments/engines/"+engine+"/run", filepath.Join(t.TempDir(), "engine")
			t.Cleanup(func() {
				if said, err := exec.CommandContext(context.Background(), script, "stop", home).CombinedOutput(); err != nil {
					t.Errorf("stop: %v\n%s", err, said)
				}
			})
			starting, why := exec.CommandContext(t.Context(), script, "start", home), new(strings.Builder)
			starting.Stderr = why
			said, err := starting.Output()
			if err != nil {
				t.Fatalf("start: %v\n%s%s", err, said, why)
			}
			a := start(t, asyncOnServers(t).with(settings{"SECKILL_REDIS_URL": strings.TrimSpace(string(said))}))
			voucher := a.onSale(t, 1)
			a.becomes(t, a.accepted(t, voucher.ID, a.user(1)), model.OrderUnpaid)
		})
	}
}

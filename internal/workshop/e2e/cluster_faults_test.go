//go:build faults

//part:clusters
package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// shortElection is the silence, in ms, that replaces a primary. Production allows more: busy machines pause as long.
const shortElection = "2000"

// ordersBefore is how many orders each voucher has sold before something happens to Redis, and sells behind it.
func ordersBefore(t *testing.T) int {
	t.Helper()
	return check.Count(t, "ORDERS", 60, 60)
}

func TestASlotOfALiveVoucherMoves(t *testing.T) {
	t.Parallel()
	cluster := testserver.RedisCluster(t, false, "--appendonly", "no")
	a := start(t, asyncOnServers(t).with(settings{"SECKILL_REDIS_URL": cluster.URL()}))
	v := a.onSale(t, 100_000)
	f := a.flowing(t, v.ID, 4, a.user)
	f.moreSales(t, ordersBefore(t))
	key := "{" + v.ID + "}"
	moved := time.Now()
	cluster.Move(t, key, (cluster.Owner(key)+1)%len(cluster.Primaries))
	took := time.Since(moved)
	f.moreSales(t, ordersBefore(t))

	t.Logf("moved within %.2f s, refused for %.2f s", took.Seconds(), f.away(moved).Seconds())
	f.conservedFlow(t)
}

// A primary of a TLS Cluster dies in a sale and stays dead. The others' vouchers and users notice nothing; its own sell
// on once its replica is there. Promises hold, nothing sells twice, and unfit settings are refused with a sentence.
func TestAPrimaryOfARedisClusterDies(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, mode string, s settings) {
		files := testserver.NewCertificates(t, "servers.test")
		cluster := (&testserver.Cluster{Files: &files}).Start(t, true, "--cluster-node-timeout", shortElection,
			"--appendonly", "no")
		s = s.with(overTLS(files)).with(settings{"SECKILL_REDIS_URL": cluster.URL()})
		if mode == "sync" { // the start is the same in async
			refusedAtStart(t, s, "rediss+cluster://"+cluster.Primaries[0].Addr())
		}
		a := start(t, s)
		flows := make([]*flow, len(cluster.Primaries))
		for i := range flows {
			flows[i] = a.flowing(t, voucherOn(t, a, cluster, i), 3, usersOn(t, a, cluster, i))
		}
		for _, f := range flows {
			f.moreSales(t, ordersBefore(t))
		}
		killed := time.Now()
		cluster.Primaries[0].Kill()
		check.Eventually(t, "the replica is promoted",
			func() bool { return testserver.Primary(t, cluster.Replicas[0]) })
		elected := time.Now()
		flows[0].moreSales(t, ordersBefore(t))
		a.ready(t)
		flows[0].failedOver(t, "node 0", killed, elected)
		for i, f := range flows[1:] {
			yes, no := f.between(killed, elected)
			check.That(t, yes != 0 && no*5 <= yes+no, "of flow %d, elsewhere, %d were accepted and %d refused", i+1,
				yes, no)
		}
		for _, f := range flows {
			f.conservedFlow(t)
		}
	})
}

// overTLS are settings with which the service shows Redis servers a certificate, and knows their name.
func overTLS(files testserver.Certificates) settings {
	return settings{
		"SECKILL_REDIS_TLS_CA": files.CA, "SECKILL_REDIS_TLS_KEY": files.ClientKey, "SECKILL_REDIS_TLS_CERT": files.ClientCert,
		"SECKILL_REDIS_TLS_SERVER_NAME": "servers.test",
	}
}

// A sale through Sentinels over TLS, whose primary dies. Each Sentinel and server speaks TLS, named in settings or not.
func TestRedisServersOverTLS(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, mode string, s settings) {
		files := testserver.NewCertificates(t, "servers.test")
		sentinels := (&testserver.Sentinels{Files: &files}).Start(t, testserver.UntilDown, "--appendonly", "no")
		s = s.with(overTLS(files)).with(settings{"SECKILL_REDIS_URL": sentinels.URL()})
		if mode == "sync" {
			refusedAtStart(t, s, "rediss+sentinel://"+sentinels.Sentinels[0].Addr()+"/"+testserver.SentinelPrimary)
		}
		a := start(t, s)
		f := a.flowing(t, a.onSale(t, 100_000).ID, 3, a.user)
		f.moreSales(t, ordersBefore(t))
		sentinels.Settle(t)
		killed := time.Now()
		sentinels.Primary.Kill()
		sentinels.AwaitPromotion(t)
		elected := time.Now()
		f.moreSales(t, ordersBefore(t))
		f.failedOver(t, "over TLS", killed, elected)
		f.conservedFlow(t)
	})
}

// refusedAtStart: no service starts with settings that do not fit TLS servers. The server at `plain` speaks no TLS.
func refusedAtStart(t *testing.T, s settings, plain string) {
	stranger := testserver.NewCertificates(t, "servers.test")
	const (
		url, ca, serverName = "SECKILL_REDIS_URL", "SECKILL_REDIS_TLS_CA", "SECKILL_REDIS_TLS_SERVER_NAME"
		cert, key           = "SECKILL_REDIS_TLS_CERT", "SECKILL_REDIS_TLS_KEY"
	)
	// The servers say it and hang up, and the end may overtake the text.
	lacks := []string{"remote error: tls", "does not take the service's certificate"}
	for name, wrong := range map[string]struct {
		change settings
		why    []string // one of them
	}{
		"another authority":          {settings{ca: stranger.CA}, []string{"signed by unknown authority"}},
		"no name":                    {settings{serverName: ""}, []string{"for 127.0.0.1"}},
		"another name":               {settings{serverName: "other.test"}, []string{"not other.test"}},
		"no certificate":             {settings{cert: "", key: ""}, lacks},
		"a stranger's certificate":   {settings{cert: stranger.ClientCert, key: stranger.ClientKey}, lacks},
		"plain text":                 {settings{url: strings.ReplaceAll(s[url], "rediss", "redis"), ca: "", cert: "", key: "", serverName: ""}, []string{"write rediss://"}},
		"TLS where nobody speaks it": {settings{url: plain}, []string{"speaks no TLS"}},
	} {
		instance, err := begin(t, s.with(wrong.change))
		if err == nil {
			t.Errorf("%s: it starts", name)
			instance.Stop(t.Context())
			continue
		}
		said := func(why string) bool { return strings.Contains(err.Error(), why) }
		check.That(t, said(url) && slices.ContainsFunc(wrong.why, said), "%s: %v, want one of %q", name, err, wrong.why)
	}
}

// TestNATSCluster: two instances sell two vouchers through three servers. A leader dies and gets an empty disk; the
// next dies and comes back; the next is paused, and so is one that follows.
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
			f.moreSales(t, ordersBefore(t))
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
		check.Need(t, i >= 0, "the stream has no leader")
		if !leads {
			i = (i + 1) % len(servers)
		}
		paused := time.Now()
		servers[i].Pause()
		// It is silent without being dead: its instance misses its pings, or the others elect a leader.
		sell()
		for n, f := range flows {
			t.Logf("a server is paused (it leads: %t), voucher %d: refused for %.1f s", leads, n,
				f.away(paused).Seconds())
		}
		servers[i].Resume()
		whole()
	}
	for _, f := range flows {
		f.conservedFlow(t)
	}
	check.Equal(t, "orders that wait in the queue", instances[0].Audit(t, flows[0].voucher).Queue.Pending, 0)
}

// onThree is a deployment with a Redis of its own, whose orders three NATS servers keep together.
func onThree(t *testing.T) (testserver.NATSServers, *testserver.Server, settings) {
	t.Helper()
	servers, redis := testserver.NATSCluster(t), testserver.Redis(t)
	return servers, redis, onServers(t).with(settings{
		"SECKILL_ORDER_MODE": "async", "SECKILL_REDIS_URL": redis.URL(), "SECKILL_NATS_URL": servers.URL(),
		"SECKILL_NATS_REPLICAS": "3",
	})
}

// killLeader kills a stream's leader during sales, waits until a new one serves all of them, and returns the dead one.
func killLeader(t *testing.T, servers testserver.NATSServers, stream string, flows ...*flow) int {
	t.Helper()
	leader := servers.Leader(t, stream)
	check.Need(t, leader >= 0, "the stream has no leader")
	killed := time.Now()
	servers[leader].Kill()
	check.Eventually(t, "the stream has another leader", func() bool {
		next := servers.Leader(t, stream)
		return next >= 0 && next != leader
	})
	elected := time.Now()
	for _, f := range flows {
		f.moreSales(t, ordersBefore(t))
	}
	for i, f := range flows {
		f.failedOver(t, fmt.Sprint("voucher ", i), killed, elected)
	}
	return leader
}

// The queue's leader dies during a sale of two vouchers, and stays dead. Without workers Redis forgets all: the
// promises are in the queue alone, and all become orders. (A fetch bounded by bytes got nothing from three replicas.)
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
		f.moreSales(t, max(ordersBefore(t), 300))
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

// The scripts in deployments/engines start engines that the product sells from.
func TestTheEnginesStart(t *testing.T) {
	t.Parallel()
	for engine, more := range map[string]settings{
		"redis-cluster": {"SECKILL_REDIS_URL": ""}, "redis-sentinel": {"SECKILL_REDIS_URL": ""},
		"nats-r3": {"SECKILL_NATS_URL": "", "SECKILL_NATS_REPLICAS": "3"},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			script, home := "../../../deployments/engines/"+engine+"/run", filepath.Join(t.TempDir(), "engine")
			t.Cleanup(func() {
				said, err := exec.CommandContext(context.Background(), script, "stop", home).CombinedOutput()
				check.That(t, err == nil, "stop: %v\n%s", err, said)
			})
			starting, why := exec.CommandContext(t.Context(), script, "start", home), new(strings.Builder)
			starting.Env = append(os.Environ(), "NATS_SERVER="+testserver.NATSProgram(t))
			starting.Stderr = why
			said, err := starting.Output()
			check.Need(t, err == nil, "start: %v\n%s%s", err, said, why)
			for name, value := range more {
				more[name] = cmp.Or(value, strings.TrimSpace(string(said)))
			}
			a := start(t, asyncOnServers(t).with(more))
			a.buys(t, a.onSale(t, 1).ID, a.user(1))
		})
	}
}

type flow struct {
	*crowd

	end func()
}

// pace is between two purchases of a buyer: a crowd that lasts for a failover is not to empty the stock.
const pace = 5 * time.Millisecond

// flowing lets some buyers at a time ask for the voucher until the test ends.
func (a *app) flowing(t *testing.T, voucherID string, parallel int, names func(n int) string) *flow {
	t.Helper()
	f := &flow{crowd: newCrowd(a, voucherID)}
	f.names, f.lives = names, func(t *testing.T, user string) { // a life
		f.insist(t, user)
		<-time.After(pace)
	}
	f.end = sync.OnceFunc(f.coming(t, parallel))
	t.Cleanup(f.end)
	return f
}

func (f *flow) between(from, to time.Time) (accepted, refused int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.samples {
		switch {
		case a.ended.Before(from) || a.ended.After(to):
		case a.final:
			accepted++
		default:
			refused++
		}
	}
	return accepted, refused
}

func (f *flow) away(from time.Time) (longest time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.samples {
		if a.promise && a.ended.After(from) {
			longest = max(longest, a.ended.Sub(from))
			from = a.ended
		}
	}
	return longest
}

func (f *flow) failedOver(t *testing.T, who string, killed, elected time.Time) {
	t.Helper()
	yes, no := f.between(killed, elected)
	t.Logf("%s: election %.1f s (%d accepted, %d refused), refused for %.2f s after it",
		who, elected.Sub(killed).Seconds(), yes, no, f.away(elected).Seconds())
}

// conservedFlow ends the stream, checks that exactly the promises are there, and sells a small stock's rest.
func (f *flow) conservedFlow(t *testing.T) {
	t.Helper()
	f.end()
	check.Equal(t, "users who heard that all is sold", f.soldOut, 0)
	f.instances[0].kept(t, f.voucher, f.promised)
	f.instances[0].sellsOut(t, f.voucher)
}

// usersOn are users whose locks are on a node of a Cluster, as many as are ever needed.
func usersOn(t *testing.T, a *app, cluster *testserver.Cluster, node int) func(n int) string {
	enough := 6000 + 10*ordersBefore(t)
	names := make([]string, 0, enough)
	for n := 0; len(names) < enough; n++ {
		if user := fmt.Sprintf("%s%d-%d", a.prefix, node, n); cluster.Owner("lock:order:"+user) == node {
			names = append(names, user)
		}
	}
	return func(n int) string { return names[n%len(names)] }
}

func voucherOn(t *testing.T, a *app, cluster *testserver.Cluster, node int) string {
	for {
		if v := a.onSale(t, 100_000); cluster.Owner("{"+v.ID+"}") == node {
			return v.ID
		}
	}
}

package queue_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"seckill/queue"
)

// cluster is three servers with JetStream that know each other.
func cluster(t *testing.T) []*server.Server {
	t.Helper()
	var servers []*server.Server
	var routes []*url.URL
	ports := make([]int, 3)
	for i := range ports { // each must know the others' before it starts
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		must(t, err)
		ports[i] = listener.Addr().(*net.TCPAddr).Port
		routes = append(routes, &url.URL{Scheme: "nats", Host: listener.Addr().String()})
		must(t, listener.Close())
	}
	for i, port := range ports {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port},
		})
		must(t, err)
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		s.Start()
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(patience) {
			t.Fatal("a server does not start")
		}
	}
	eventually(t, "the cluster has a leader", func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				return true
			}
		}
		return false
	})
	return servers
}

// On a cluster, a stream of one replica becomes one of three when three are
// configured, and never the other way round.
//
//nolint:paralleltest // three servers that elect leaders by time-outs need the machine for themselves
func TestReplicasAreKept(t *testing.T) {
	servers := cluster(t)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	open := func(replicas int) (*queue.Queue, *journal) {
		log := &journal{}
		q, err := openQueue(t, queue.Options{URL: strings.Join(urls, ","), Deployment: deployment, Replicas: replicas, Log: log.logger()})
		must(t, err)
		return q, log
	}
	replicas := func() int {
		stream, err := plain(t, nats.Name("beside"), strings.Join(urls, ",")).Stream(t.Context(), orders)
		must(t, err)
		return stream.CachedInfo().Config.Replicas
	}
	one, _ := open(1)
	must(t, one.Publish(t.Context(), some("a", 1)))
	three, log := open(3)
	if n := replicas(); n != 3 || !log.has("setting=num_replicas", "was=1", "is=3") {
		t.Errorf("%d replicas\n%s", n, log)
	}
	open(1)
	if n := replicas(); n != 3 {
		t.Errorf("an instance that wants one replica has made it %d", n)
	}
	// The servers take some ten seconds to agree on a leader of the three.
	eventually(t, "the three accept orders", func() bool { return three.Publish(t.Context(), some("b", 1)) == nil })
	var l ledger
	consume(t, three, l.persist, queue.ConsumeOptions{})
	eventually(t, "both orders came out", func() bool { return len(l.seen()) == 2 })
}

// Several instances start at once on a server that has nothing yet.
func TestInstancesStartTogether(t *testing.T) {
	t.Parallel()
	f := bare(t)
	var starters sync.WaitGroup
	for i := range 8 {
		starters.Go(func() {
			q, err := f.tryOpen(t, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if err := q.Publish(t.Context(), some(fmt.Sprintf("i%d", i), 2)); err != nil {
				t.Error(err)
			}
		})
	}
	starters.Wait()
	q := f.open(t, nil)
	var l ledger
	consume(t, q, l.persist, queue.ConsumeOptions{})
	drained(t, q)
	if n := len(l.seen()); n != 16 {
		t.Errorf("%d orders, want 16", n)
	}
}

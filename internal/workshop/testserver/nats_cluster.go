package testserver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// leaderBudget bounds one question for the leader of a stream. A living leader answers in milliseconds; while there is
// none, no server answers.
const leaderBudget = 200 * time.Millisecond

// NATSServers are the three of a JetStream cluster.
type NATSServers []*Server

// NATSCluster starts three NATS servers from deployments/nats.conf and deployments/engines/nats-r3/node.conf, which keep
// streams of three replicas together. One that was killed comes back with Start.
func NATSCluster(t testing.TB) NATSServers {
	t.Helper()
	program := NATSProgram(t)
	between := takePorts(t, 3)
	var servers NATSServers
	for i := range between {
		servers = append(servers, start(t, natsEngine(program, &natsMember{between: between, number: i}), nil))
	}
	check.Eventually(t, "the three have a leader", func() bool {
		return servers.asked(t, func(ctx context.Context, js jetstream.JetStream) error {
			_, err := js.AccountInfo(ctx)
			return err
		}) == nil
	})
	return servers
}

// natsMember is one server of a cluster; nil is a server alone.
type natsMember struct {
	between []port // of the servers, for each other
	number  int
}

func (m *natsMember) files() []string {
	if m == nil {
		return []string{"nats.conf"}
	}
	return []string{"nats.conf", "engines/nats-r3/node.conf"}
}

func (m *natsMember) args() []string {
	if m == nil {
		return nil
	}
	routes := make([]string, len(m.between))
	for i, p := range m.between {
		routes[i] = fmt.Sprintf("nats://%s:%d", loopback, p.number)
	}
	return []string{"--cluster", routes[m.number], "--routes", strings.Join(routes, ",")}
}

// URL is where clients find the servers.
func (servers NATSServers) URL() string {
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = s.URL()
	}
	return strings.Join(urls, ",")
}

// Leader is the place among the servers of the one that leads a stream, as a connection of its own is told; -1 while
// there is none. A leader that has died is none from the election of another on.
func (servers NATSServers) Leader(t testing.TB, stream string) int {
	t.Helper()
	info := servers.info(t, stream)
	if info == nil {
		return -1
	}
	for i, s := range servers {
		if natsName(s) == info.Cluster.Leader {
			return i
		}
	}
	return -1
}

// Current tells whether all three servers have all of a stream.
func (servers NATSServers) Current(t testing.TB, stream string) bool {
	t.Helper()
	info := servers.info(t, stream)
	if info == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != len(servers)-1 {
		return false
	}
	for _, replica := range info.Cluster.Replicas {
		if !replica.Current || replica.Offline {
			return false
		}
	}
	return true
}

// info is what the leader of a stream knows; nil without one.
func (servers NATSServers) info(t testing.TB, stream string) (info *jetstream.StreamInfo) {
	t.Helper()
	err := servers.asked(t, func(ctx context.Context, js jetstream.JetStream) error {
		found, err := js.Stream(ctx, stream)
		if err == nil {
			info = found.CachedInfo()
		}
		return err
	})
	if err != nil || info.Cluster == nil {
		return nil
	}
	return info
}

// asked makes a connection of its own, to any server that answers: one that was paused keeps those that it has.
func (servers NATSServers) asked(t testing.TB, question func(context.Context, jetstream.JetStream) error) error {
	t.Helper()
	conn, err := nats.Connect(servers.URL(), nats.Timeout(leaderBudget), nats.NoReconnect())
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("ask the cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), leaderBudget)
	defer cancel()
	return question(ctx, js)
}

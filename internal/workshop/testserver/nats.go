package testserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/workshop/check"
)

const natsURL = "nats://%s" // as engine.url

// NATS starts a nats-server of the test's own from deployments/nats.conf, as durable as in production, built from
// go.mod's module: Debian's is too old. Settings win over the file's or are added, e.g. "max_file_store: 1MB".
func NATS(t testing.TB, settings ...string) *Server {
	t.Helper()
	return Home("").NATS(t, settings...)
}

// NATS starts a NATS server of this version, as the function of that name.
func (h Home) NATS(t testing.TB, settings ...string) *Server {
	t.Helper()
	program := h.program("nats-server")
	if h == "" {
		program = NATSProgram(t)
	}
	return start(t, natsEngine(program, []string{"nats.conf"}), settings)
}

// NATSProgram is the path of nats-server.
func NATSProgram(t testing.TB) string {
	t.Helper()
	return check.Value(natsProgram())(t)
}

// ReloadNATS gives a running NATS server other further settings, at once also for open connections.
func (s *Server) ReloadNATS(settings ...string) {
	s.t.Helper()
	s.locked("reload", func() error {
		s.extra = settings
		s.engine.args(s) // writes the file
		return s.child.signal(syscall.SIGHUP)
	})
}

// natsEngine is a server with some files of deployments/ and more arguments. It listens once JetStream is ready.
func natsEngine(program string, files []string, more ...string) engine {
	return engine{
		program: program, url: natsURL, answer: "INFO {",
		args: func(s *Server) []string {
			// The server reports a file that could not be written.
			path := filepath.Join(s.dir, "nats.conf")
			_ = writeNATSConfig(path, files, append([]string{
				"listen: " + s.Addr(),
				"http: \"" + loopback + ":-1\"", // any port
				"store_dir: \"" + s.data() + "\"",
				"server_name: " + natsName(s),
			}, s.extra...))
			return append([]string{"-c", path}, more...)
		},
	}
}

func natsName(s *Server) string { return "server-" + strconv.Itoa(s.port.number) }

// writeNATSConfig writes files of deployments/ as one, with some of their settings replaced where they stand.
func writeNATSConfig(path string, files, settings []string) error {
	config := ""
	for _, file := range files {
		text, err := os.ReadFile(configFile(file))
		if err != nil {
			return err
		}
		config += string(text)
	}
	for _, setting := range settings {
		name, _, _ := strings.Cut(setting, ":")
		line := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(name) + `:.*$`)
		if line.MatchString(config) {
			config = line.ReplaceAllLiteralString(config, setting)
		} else {
			config += setting + "\n"
		}
	}
	return os.WriteFile(path, []byte(config), 0o600)
}

// SharedNATS returns the URL of the NATS server of all tests. Each deployment has its own stream.
func SharedNATS(t testing.TB) string {
	t.Helper()
	return sharedNATS.get(t).URL()
}

// launchSharedNATS starts a server that need not wait for the disk, because no test kills it.
func launchSharedNATS() (*Server, error) {
	program, err := natsProgram()
	if err != nil {
		return nil, err
	}
	return launch(natsEngine(program, []string{"nats.conf"}), []string{"sync_interval: 2m"})
}

const leaderBudget = 200 * time.Millisecond // of one question: a leader answers in milliseconds, else nobody does

// NATSServers are the three of a JetStream cluster.
type NATSServers []*Server

// NATSCluster is three servers for R3 streams (deployments/nats.conf, engines/nats-r3/node.conf); Start revives one.
func NATSCluster(t testing.TB) (servers NATSServers) {
	t.Helper()
	program, files := NATSProgram(t), []string{"nats.conf", "engines/nats-r3/node.conf"}
	routes := make([]string, 3)
	for i, between := range takePorts(t, len(routes)) {
		routes[i] = "nats://" + between.addr()
	}
	for _, own := range routes {
		servers = append(servers, start(t, natsEngine(program, files, "--cluster", own, "--routes",
			strings.Join(routes, ",")), nil))
	}
	check.Eventually(t, "the three have a leader", func() bool {
		return errors.Is(check.ErrorOf(servers.known(t, "none")), jetstream.ErrStreamNotFound)
	})
	return servers
}

// URL is where clients find the servers.
func (servers NATSServers) URL() string { return strings.Join(each(servers, (*Server).URL), ",") }

// Leader is the place of the server that leads a stream; -1: none. A dead leader counts until another one is elected.
func (servers NATSServers) Leader(t testing.TB, stream string) int {
	t.Helper()
	known, err := servers.known(t, stream)
	return slices.IndexFunc(servers, func(s *Server) bool { return err == nil && natsName(s) == known.Leader })
}

// Current tells whether all three servers have all of a stream.
func (servers NATSServers) Current(t testing.TB, stream string) bool {
	t.Helper()
	known, err := servers.known(t, stream)
	behind := func(replica *jetstream.PeerInfo) bool { return !replica.Current || replica.Offline }
	return err == nil && known.Leader != "" && len(known.Replicas) == len(servers)-1 &&
		!slices.ContainsFunc(known.Replicas, behind)
}

// known is what a stream's leader knows, by a new connection to any server that answers: a paused one keeps its own.
func (servers NATSServers) known(t testing.TB, stream string) (jetstream.ClusterInfo, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), leaderBudget)
	defer cancel()
	conn, err := nats.Connect(servers.URL(), nats.Timeout(leaderBudget), nats.NoReconnect())
	if err != nil {
		return jetstream.ClusterInfo{}, err
	}
	defer conn.Close()
	js := check.Value(jetstream.New(conn))(t)
	found, err := js.Stream(ctx, stream)
	if err != nil {
		return jetstream.ClusterInfo{}, err
	}
	return *found.CachedInfo().Cluster, nil
}

package testserver

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/workshop/check"
)

const (
	// natsURL is where clients find a server, as engine.url.
	natsURL    = "nats://%s"
	natsModule = "github.com/nats-io/nats-server/v2"
	// natsReadyBudget bounds one look whether the server is ready.
	natsReadyBudget = time.Second
)

// NATS starts a nats-server of the test's own from deployments/nats.conf, as durable as in production. It is
// built from the module that go.mod requires: Debian's is too old. Further arguments are settings that win
// over the file, e.g. "max_file_store: 1MB"; one that the file does not name is added to it.
func NATS(t testing.TB, settings ...string) *Server {
	t.Helper()
	return Home("").NATS(t, settings...)
}

// NATSProgram is the path of nats-server.
func NATSProgram(t testing.TB) string {
	t.Helper()
	program, err := buildNATS(t.Context())
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	return program
}

// ReloadNATS gives a running NATS server other further settings, without a restart. What an account may do
// changes at once, also for connections that are there.
func (s *Server) ReloadNATS(settings ...string) {
	s.t.Helper()
	s.locked("reload", func() error {
		s.extra = settings
		s.engine.args(s) // writes the file
		return s.child.signal(syscall.SIGHUP)
	})
}

// buildNATS builds the program in the directory of make's programs, so that it is linked once and not for every test
// binary. go build does nothing when nothing has changed.
func buildNATS(ctx context.Context) (string, error) {
	root := filepath.Dir(filepath.Dir(configFile("nats.conf")))
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o750); err != nil {
		return "", fmt.Errorf("make the directory of programs: %w", err)
	}
	program := filepath.Join(bin, "nats-server")
	// Two test binaries that build at once would each replace what the other is about to start.
	turn, err := await(program + ".lock")
	if err != nil {
		return "", fmt.Errorf("wait for another build of %s: %w", natsModule, err)
	}
	defer turn.Close() // and with it the lock
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, natsModule)
	cmd.Dir = root
	// As it is released, and the same whether the tests run with the race detector or not.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", natsModule, err, out)
	}
	return program, nil
}

// natsEngine is a server, or with a member one of a cluster.
func natsEngine(program string, member *natsMember) engine {
	return engine{
		program: program,
		url:     natsURL,
		prepare: emptyDirectory,
		args: func(s *Server) []string {
			// The server reports a file that could not be written.
			path := filepath.Join(s.dir, "nats.conf")
			_ = writeNATSConfig(path, member.files(), append([]string{
				"listen: " + s.Addr(),
				"http: \"" + loopback + ":-1\"", // any port
				"store_dir: \"" + s.data() + "\"",
				"server_name: " + natsName(s),
			}, s.extra...))
			return append([]string{"-c", path}, member.args()...)
		},
		ready: natsReady,
	}
}

// natsName is unique for a server, because no other server has its directory.
func natsName(s *Server) string {
	return filepath.Base(filepath.Dir(s.dir)) + "-" + filepath.Base(s.dir)
}

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

// natsReady reads the greeting of the server, which listens only when JetStream is ready. It checks the name in it, so
// that another test's server on the same port is not taken for this one.
func natsReady(ctx context.Context, s *Server) error {
	ctx, cancel := context.WithTimeout(ctx, natsReadyBudget)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return fmt.Errorf("ask nats-server on %s: %w", s.Addr(), err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	greeting, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("ask nats-server on %s: %w", s.Addr(), err)
	}
	if !strings.Contains(greeting, `"server_name":"`+natsName(s)+`"`) {
		return fmt.Errorf("another nats-server answers on %s", s.Addr())
	}
	return nil
}

// SharedNATS returns the URL of the NATS server that all tests share. Tests use deployments of their own: each
// database names one of its own, and its stream with it.
func SharedNATS(t testing.TB) string {
	t.Helper()
	return process.nats.get(t, sharedNATS()).URL()
}

// launchSharedNATS starts a server that need not wait for the disk, because no test kills it.
func launchSharedNATS() (*Server, error) {
	// Not the context of the test that asks first: the server is for all of them.
	program, err := buildNATS(context.Background())
	if err != nil {
		return nil, err
	}
	return launch(stderr{}, natsEngine(program, nil), []string{"sync_interval: 2m"})
}

// leaderBudget bounds one question for the leader of a stream. A living leader answers in milliseconds; while there is
// none, no server answers.
const leaderBudget = 200 * time.Millisecond

// NATSServers are the three of a JetStream cluster.
type NATSServers []*Server

// NATSCluster starts three NATS servers from deployments/nats.conf and deployments/engines/nats-r3/node.conf, which
// keep streams of three replicas together. One that was killed comes back with Start.
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

package bench

import (
	"context"
	"database/sql"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
)

// quorum is how many lock instances multilock has.
const quorum = 3

// harness holds the servers, which all sessions use, and what else is made once.
type harness struct {
	*testing.T
	options
	builds []build // this checkout's first

	database, redis, nats *testserver.Server
	locks                 []*testserver.Server
	db                    *sql.DB
	memory                *redis.Client
	stream                jetstream.JetStream
	natsVersion           string

	yardstick    *testserver.Command
	yardstickURL string
	authority    *token.Authority
	tokens       *records
	client       *http.Client
	failures     []string
}

// open starts the servers as production has them: their files are those of deployments/.
func open(t *testing.T, o options) *harness {
	t.Helper()
	h := &harness{T: t, options: o, builds: append([]build{{"", testserver.Program(t)}}, o.builds...)}
	// The servers of tests are small; these two have the sizes of deployments/my.cnf.
	h.database = testserver.MariaDB(t, "--innodb-buffer-pool-size=512M", "--innodb-log-file-size=256M")
	h.redis, h.nats = testserver.Redis(t), testserver.NATS(t)
	h.authority = check.Value(remote.Authority(secret))(t)
	h.tokens = writeTokens(t, h.authority, o.mostOrders*o.seconds)
	h.client = remote.Client(t, "", 16)

	h.db = check.Value(sql.Open("mysql", h.database.AdminDSN("")))(t)
	t.Cleanup(func() { h.db.Close() })
	h.memory = connectRedis(t, h.redis)
	conn := check.Value(nats.Connect(h.nats.URL()))(t)
	t.Cleanup(conn.Close)
	h.natsVersion = conn.ConnectedServerVersion()
	h.stream = check.Value(jetstream.New(conn))(t)

	address := testserver.Address(t)
	h.yardstickURL = "http://" + address
	h.yardstick = testserver.Run(t, environ(), h.buildYardstick(), "-listen", address, "-secret", secret)
	check.Eventually(t, "the yardstick answers", func() bool {
		return (remote.Service{URL: h.yardstickURL, Client: h.client}).Status("/") != 0
	})
	return h
}

func connectRedis(t *testing.T, server *testserver.Server) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { client.Close() })
	return client
}

// lockServers are started when the first case asks for them. As in deployments/docker-compose.yml they flush every write.
func (h *harness) lockServers() []*testserver.Server {
	for len(h.locks) < quorum {
		h.locks = append(h.locks, testserver.Redis(h.T, "--appendfsync", "always"))
	}
	return h.locks
}

func (h *harness) buildYardstick() string {
	h.Helper()
	path := filepath.Join(h.TempDir(), "yardstick")
	cmd := exec.CommandContext(h.Context(), "go", "build", "-o", path, "./yardstick")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		h.Fatalf("build the yardstick: %v\n%s", err, said)
	}
	return path
}

// environ is that of the programs which are measured: without what may be set for this test alone.
func environ(settings ...string) []string {
	own := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "GORACE"}, name) || strings.HasPrefix(name, "SECKILL_")
	})
	return append(own, settings...)
}

// fresh empties Redis and removes every stream. No service runs.
func (h *harness) fresh() {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
	defer cancel()
	for _, server := range append([]*testserver.Server{h.redis}, h.locks...) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		check.Must(h, client.FlushAll(ctx).Err())
		_ = client.BgRewriteAOF(ctx).Err() // a short file; refused while one is written already
		check.Eventually(h, "Redis has written its file", func() bool {
			return strings.Contains(client.Info(ctx, "persistence").Val(), "aof_rewrite_in_progress:0")
		})
		check.Must(h, client.Close())
	}
	names := h.stream.StreamNames(ctx)
	for name := range names.Name() {
		check.Must(h, h.stream.DeleteStream(ctx, name))
	}
	check.Must(h, names.Err())
}

// measureYardstick asks the yardstick as a case is asked.
func (h *harness) measureYardstick(connections int) yardstickFigures {
	h.Helper()
	w := work{head: purchase("00000000"), records: h.tokens}
	before := testserver.CPU(h, h.yardstick.PID())
	told := closed(h.T, []string{h.yardstickURL}, connections, max(1, h.seconds/3), w)
	if told.answers == 0 || told.refused+told.broken > 0 {
		h.Fatalf("the yardstick: %+v", told)
	}
	return yardstickFigures{heard: told, cpu: (testserver.CPU(h, h.yardstick.PID()) - before) / time.Duration(told.answers)}
}

// yardstickFigures is one measurement of the yardstick, or the mean of two.
type yardstickFigures struct {
	heard
	cpu time.Duration // a request
}

// mean is the yardstick before a measurement and after it.
func (y yardstickFigures) mean(z yardstickFigures) yardstickFigures {
	y.answers += z.answers
	y.took += z.took
	y.heard.cpu += z.heard.cpu
	y.p50, y.p99, y.p999 = (y.p50+z.p50)/2, (y.p99+z.p99)/2, (y.p999+z.p999)/2
	y.cpu = (y.cpu + z.cpu) / 2
	return y
}

func (y yardstickFigures) figures() Figures {
	return Figures{
		Ratio: 1, Rate: y.rate(), P50: milliseconds(y.p50), P99: milliseconds(y.p99), P999: milliseconds(y.p999), Cost: 1,
		CPUProduct: microseconds(y.cpu), CPULoad: microseconds(y.heard.cpu) / float64(y.answers),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

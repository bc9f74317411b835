//go:build faults

//part:packaging

package bench

import (
	"database/sql"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// longest bounds every wait for what the service has to finish by itself, such as a long queue.
const longest = 3 * time.Minute

// session is the service on servers of its own, for one case.
type session struct {
	testing.TB
	*harness
	workCase
	program   string
	servers   map[string][]*testserver.Server // by what their CPU time is called
	settings  []string
	instances []*instance
	worker    *instance // nil: the instances do its work
	db        *sql.DB
	stream    jetstream.JetStream
}

// instance is one process of the service.
type instance struct {
	*testserver.Command
	remote.Service

	ops string
}

// begin starts the servers as production has them, and the service. The limits are off, because all requests come from
// one address; the backlog may grow as old as it likes, because its cost is measured separately.
func (h *harness) begin(t testing.TB, c workCase, program string) *session {
	t.Helper()
	// The servers of tests are small; these two have the sizes of deployments/my.cnf.
	database := testserver.MariaDB(t, "--innodb-buffer-pool-size=512M", "--innodb-log-file-size=256M")
	memory, queue := testserver.Redis(t), testserver.NATS(t)
	s := &session{TB: t, harness: h, workCase: c, program: program, servers: map[string][]*testserver.Server{
		"mariadb": {database}, "redis": {memory}, "nats": {queue},
	}}
	s.settings = append([]string{
		"SECKILL_DATABASE_DSN=" + database.DSN(testserver.DefaultSchema), "SECKILL_REDIS_URL=" + memory.URL(),
		"SECKILL_NATS_URL=" + queue.URL(), "SECKILL_ORDER_MODE=" + string(c.mode), "SECKILL_JWT_SECRET=" + secret,
		"SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0", "SECKILL_BACKLOG_MAX_AGE=1h", "SECKILL_LOG_LEVEL=info",
	}, c.settings...)
	if c.locks { // as in deployments/docker-compose.yml they flush every write
		var urls []string
		for range 3 {
			server := testserver.Redis(t, "--appendfsync", "always")
			s.servers["redis"], urls = append(s.servers["redis"], server), append(urls, server.URL())
		}
		s.settings = append(s.settings, "SECKILL_LOCK_REDIS_URLS="+strings.Join(urls, ","))
	}
	s.db = check.Value(sql.Open("mysql", database.AdminDSN(testserver.DefaultSchema)))(t)
	t.Cleanup(func() { s.db.Close() })
	conn := check.Value(nats.Connect(queue.URL()))(t)
	t.Cleanup(conn.Close)
	s.stream = check.Value(jetstream.New(conn))(t)
	for range h.instances {
		s.instances = append(s.instances, s.start(map[bool]string{true: "api", false: "all"}[c.ownProcess]))
	}
	return s
}

// start runs one process and returns when it is ready.
func (s *session) start(role string) *instance {
	s.Helper()
	main, ops := testserver.Address(s), testserver.Address(s)
	service := remote.Service{URL: "http://" + main, Client: s.client, Tokens: s.authority}
	i := &instance{Service: service, ops: "http://" + ops}
	own := append(s.settings, "SECKILL_ROLE="+role, "SECKILL_HTTP_ADDR="+main, "SECKILL_OPS_ADDR="+ops)
	i.Command = testserver.Run(s, environ(own...), s.program, "serve")
	check.Eventually(s, "the service is ready", func() bool {
		if i.Ended() {
			s.Fatalf("the service has ended")
		}
		return i.Status("/readyz") == http.StatusOK
	})
	return i
}

// environ is that of the programs which are measured: without what may be set for this test alone.
func environ(settings ...string) []string {
	own := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG"}, name) || strings.HasPrefix(name, "SECKILL_")
	})
	return append(own, settings...)
}

// audit checks with the service's own command that units and orders add up everywhere.
func (s *session) audit() {
	s.Helper()
	s.drained()
	audit := exec.CommandContext(s.Context(), s.program, "audit")
	audit.Env = environ(s.settings...)
	if said, err := audit.CombinedOutput(); err != nil {
		s.Errorf("%s: seckill audit: %v\n%s", s.name, err, said)
	}
}

// onSale makes vouchers that begin so long from now, and waits until the service sells them or would.
func (s *session) onSale(count, stock int, begins time.Duration) (ids []string) {
	s.Helper()
	for range count {
		ids = append(ids, s.instances[0].Create(s, map[string]any{
			"stock": stock, "begin_at": time.Now().Add(begins).UTC(), "end_at": time.Now().Add(24 * time.Hour).UTC(),
		}).ID)
	}
	for _, id := range ids {
		check.Eventually(s, "the voucher can be sold", func() bool {
			audit := s.instances[0].Audit(s, id)
			return s.mode == model.ModeSync || audit.Redis != nil && audit.Redis.State == string(model.CopyOpen)
		})
	}
	return ids
}

// drained waits until everything that was accepted is persisted and settled: a message is acknowledged after that. A
// worker that was away is started for it.
func (s *session) drained() {
	s.Helper()
	switch {
	case s.mode == model.ModeSync:
	case s.ownProcess && s.worker == nil:
		s.drain()
	default:
		s.await("the queue is empty", func() bool { return s.messages(false) == 0 })
	}
}

// await is check.Eventually for what may take longer.
func (s *session) await(what string, holds func() bool) {
	s.Helper()
	over := time.After(longest)
	for tick := time.Tick(20 * time.Millisecond); !holds(); {
		select {
		case <-over:
			s.Fatalf("%s: not within %v", what, longest)
		case <-tick:
		}
	}
}

// messages are those that wait for a worker, or all that there have ever been.
func (s *session) messages(ever bool) (count uint64) {
	s.Helper()
	list := s.stream.ListStreams(s.Context())
	for info := range list.Info() {
		switch {
		case ever:
			count += info.State.LastSeq
		case strings.HasPrefix(info.Config.Name, "SECKILL_ORDERS_"):
			count += info.State.Msgs
		}
	}
	check.Must(s, list.Err())
	return count
}

// counts is everything that is counted, at one moment: CPU time in microseconds, and the rest by name.
type counts map[string]float64

// count looks at the CPU last before a measurement, and first after it, so that looking is no part of it.
func (s *session) count(before bool) counts {
	s.Helper()
	c := counts{}
	if !before {
		s.addCPU(c)
	}
	for _, i := range s.processes() {
		for name, value := range s.scrape(i) {
			c[name] += value
		}
	}
	c["statements"] = float64(testserver.Status(s, s.db, "Com_select", "Com_insert", "Com_update", "Com_delete", "Com_commit"))
	c["fsyncs"] = float64(testserver.Status(s, s.db, "Innodb_data_fsyncs"))
	c["messages"] = float64(s.messages(true))
	var rows float64
	check.Must(s, s.db.QueryRowContext(s.Context(), "SELECT COUNT(*) FROM orders").Scan(&rows))
	c["rows"] = rows
	for _, server := range s.servers["redis"] {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		_, text, _ := strings.Cut(check.Value(client.Info(s.Context(), "stats").Result())(s), "total_commands_processed:")
		text, _, _ = strings.Cut(text, "\r")
		c["redis-commands"] += check.Value(strconv.ParseFloat(text, 64))(s) // those inside scripts, too
		check.Must(s, client.Close())
	}
	if before {
		s.addCPU(c)
	}
	return c
}

// since is what was counted since an earlier moment.
func (c counts) since(earlier counts) counts {
	grown := maps.Clone(c)
	for name := range grown {
		grown[name] -= earlier[name]
	}
	return grown
}

func (s *session) processes() []*instance {
	if s.worker != nil {
		return append(slices.Clip(s.instances), s.worker)
	}
	return s.instances
}

func (s *session) addCPU(c counts) {
	s.Helper()
	for name, servers := range s.servers {
		for _, server := range servers {
			c[name+"-µs"] += float64(testserver.CPU(s, server.PID()).Microseconds())
		}
	}
	for _, i := range s.processes() {
		c["product-µs"] += float64(testserver.CPU(s, i.PID()).Microseconds())
	}
}

// scrape reads Prometheus' text: each metric summed over its labels, and by outcome where it has that label.
func (s *session) scrape(i *instance) counts {
	s.Helper()
	text := string(check.Value(api.Send(s.Context(), s.client, http.MethodGet, i.ops+"/metrics", "", nil))(s).Body)
	out := counts{}
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if at < 0 || err != nil || strings.HasPrefix(line, "#") {
			continue
		}
		name, labels, _ := strings.Cut(line[:at], "{")
		out[name] += value
		if _, outcome, has := strings.Cut(labels, `outcome="`); has {
			outcome, _, _ = strings.Cut(outcome, `"`)
			out[name+" "+outcome] += value
		}
	}
	return out
}

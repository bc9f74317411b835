//go:build faults

//part:packaging
package bench

import (
	"bufio"
	"bytes"
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

type instance struct {
	*testserver.Command
	remote.Service

	ops string
}

// begin starts servers as in production, and the service: without limits (one address sends all) or a backlog's age.
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
	h.record.measured(s, conn.ConnectedServerVersion())
	for range cmp.Or(c.processes, h.instances) {
		s.instances = append(s.instances, s.start(map[bool]string{true: "api", false: "all"}[c.ownProcess]))
	}
	return s
}

func (s *session) start(role string) *instance {
	s.Helper()
	main, ops := testserver.Address(s), testserver.Address(s)
	service := remote.Service{URL: "http://" + main, Client: s.client, Tokens: s.authority}
	i := &instance{Service: service, ops: "http://" + ops}
	own := append(s.settings, "SECKILL_ROLE="+role, "SECKILL_HTTP_ADDR="+main, "SECKILL_OPS_ADDR="+ops)
	i.Command = testserver.Run(s, environ(own...), s.program, "serve")
	check.Eventually(s, "the service is ready", func() bool {
		check.Need(s, !i.Ended(), "the service has ended")
		return i.Status("/readyz") == http.StatusOK
	})
	return i
}

// environ is that of the programs which are measured: without what may be set for this test alone.
func environ(settings ...string) []string {
	own := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG"}, name) ||
			strings.HasPrefix(name, "SECKILL_")
	})
	return append(own, settings...)
}

func (s *session) audit() {
	s.Helper()
	s.drained()
	audit := exec.CommandContext(s.Context(), s.program, "audit")
	audit.Env = environ(s.settings...)
	said, err := audit.CombinedOutput()
	check.That(s, err == nil, "%s: seckill audit: %v\n%s", s.name, err, said)
}

// onSale makes vouchers that begin so long from now, and waits until the service sells them or would.
func (s *session) onSale(count, stock int, begins time.Duration) (ids []string) {
	s.Helper()
	for range count {
		draft := map[string]any{
			"stock": stock, "begin_at": time.Now().Add(begins).UTC(), "end_at": time.Now().Add(24 * time.Hour).UTC(),
		}
		if s.free {
			draft["price"] = 0
		}
		ids = append(ids, s.instances[0].Create(s, draft).ID)
	}
	for _, id := range ids {
		check.Eventually(s, "the voucher can be sold", func() bool {
			audit := s.instances[0].Audit(s, id)
			return s.mode == model.ModeSync || audit.Redis != nil && audit.Redis.State == string(model.CopyOpen)
		})
	}
	return ids
}

// drained waits until all accepted work is persisted, settled and then acknowledged. It starts a worker that is away.
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
	c := counts{}
	if !before {
		s.addCPU(c)
	}
	for _, i := range s.processes() {
		for name, value := range s.scrape(i) {
			c[name] += value
		}
	}
	c["statements"] = float64(testserver.Status(s, s.db, "Com_select", "Com_insert", "Com_update", "Com_delete",
		"Com_commit"))
	c["fsyncs"] = float64(testserver.Status(s, s.db, "Innodb_data_fsyncs"))
	c["messages"] = float64(s.messages(true))
	var rows float64
	check.Must(s, s.db.QueryRowContext(s.Context(), "SELECT COUNT(*) FROM orders").Scan(&rows))
	c["rows"] = rows
	for _, server := range s.servers["redis"] {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		_, text, _ := strings.Cut(check.Value(client.Info(s.Context(), "stats").Result())(s),
			"total_commands_processed:")
		text, _, _ = strings.Cut(text, "\r")
		c["redis-commands"] += check.Value(strconv.ParseFloat(text, 64))(s) // those inside scripts, too
		check.Must(s, client.Close())
	}
	if before {
		s.addCPU(c)
	}
	return c
}

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

// load is what a generator sends. It spares the service's CPU: a request is a few copied strings, a write and a read.
type load struct {
	addresses   []string // of the instances, over which the connections are spread
	connections int
	rate        int // requests a second; 0: each connection asks again as soon as it has its answer
	lasts       time.Duration
	request     func(buffer []byte, n int) []byte // appends the n-th request
}

type heard struct {
	sent, broken  int             // broken: without an answer
	good, refused []time.Duration // how long each answer took since its request was due
	took, cpu     time.Duration   // cpu: of the generator
}

func (h heard) answers() int { return len(h.good) + len(h.refused) }

func (h heard) rate() float64 { return float64(h.answers()) / h.took.Seconds() }

// patience is how long an answer is waited for: longer than the longest one that the contract allows.
const patience = 10 * time.Second

// run sends for as long as the load lasts, and returns when every request has its answer.
func (l load) run(t testing.TB) (sum heard) {
	t.Helper()
	conns := make([]net.Conn, l.connections)
	for i := range conns {
		conns[i] = check.Value(net.Dial("tcp", l.addresses[i%len(l.addresses)]))(t)
		defer conns[i].Close()
	}
	parts, errs := make([]heard, l.connections), make([]error, l.connections)
	var next atomic.Int64
	var all sync.WaitGroup
	before, start := ownCPU(t), time.Now()
	for i, conn := range conns {
		all.Go(func() { errs[i] = l.ask(conn, &next, start, &parts[i]) })
	}
	all.Wait()
	sum.took, sum.cpu = time.Since(start), ownCPU(t)-before
	for _, part := range parts {
		sum.sent += part.sent
		sum.broken += part.broken
		sum.good, sum.refused = append(sum.good, part.good...), append(sum.refused, part.refused...)
	}
	if err := errors.Join(errs...); err != nil {
		t.Errorf("the generator: %v", err)
	}
	slices.Sort(sum.good)
	slices.Sort(sum.refused)
	return sum
}

// ask sends requests in turn. In an open load each is due at a moment: one that no connection was free for is late.
func (l load) ask(conn net.Conn, next *atomic.Int64, start time.Time, h *heard) error {
	end := start.Add(l.lasts)
	if err := conn.SetDeadline(end.Add(patience)); err != nil {
		return err
	}
	reader, buffer := bufio.NewReader(conn), make([]byte, 0, 1024)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		n, due := int(next.Add(1))-1, time.Now()
		if l.rate > 0 {
			due = start.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
		}
		if !due.Before(end) {
			return nil
		}
		if ahead := time.Until(due); ahead > 0 {
			timer.Reset(ahead)
			<-timer.C
		}
		h.sent++
		buffer = l.request(buffer[:0], n)
		_, err := conn.Write(buffer)
		status := 0
		if err == nil {
			status, err = answer(reader)
		}
		switch took := time.Since(due); {
		case err != nil:
			h.broken++
			return err
		case status < http.StatusBadRequest:
			h.good = append(h.good, took)
		default:
			h.refused = append(h.refused, took)
		}
	}
}

func answer(from *bufio.Reader) (status int, err error) {
	line, err := from.ReadSlice('\n')
	if err != nil || len(line) < len("HTTP/1.1 200") {
		return 0, fmt.Errorf("read an answer: %w %q", err, line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, err
	}
	for length := -1; ; {
		if line, err = from.ReadSlice('\n'); err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if value, is := bytes.CutPrefix(line, []byte("Content-Length: ")); is {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
		if len(line) > 0 {
			continue
		}
		if length < 0 {
			return 0, errors.New("an answer does not say its length")
		}
		_, err = io.CopyN(io.Discard, from, int64(length))
		return status, err
	}
}

func ownCPU(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	check.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// milliseconds is a quantile of sorted times; 0 when there is none.
func milliseconds(took []time.Duration, quantile float64) float64 {
	if len(took) == 0 {
		return 0
	}
	return float64(took[min(len(took)-1, int(quantile*float64(len(took))))].Microseconds()) / 1000
}

// A run whose accounts do not agree is an error and no figure.
func TestAccounts(t *testing.T) {
	t.Parallel()
	some := make([]time.Duration, 100)
	type run struct {
		work
		sells, open bool
		heard       heard
		counts      counts
	}
	sale := run{sells: true, heard: heard{good: some}, counts: counts{"rows": 100, "fsyncs": 4, "messages": 5}}
	refusal := run{
		work: work{opposes: true, code: model.CodeSoldOut}, heard: heard{refused: some},
		counts: counts{"seckill_orders_placed_total SOLD_OUT": 100},
	}
	reading := run{heard: heard{good: some}}
	for name, test := range map[string]struct {
		run
		spoil func(*run)
		want  string // no error when empty
	}{
		"a sale":                    {sale, func(*run) {}, ""},
		"a refusal":                 {refusal, func(*run) {}, ""},
		"a reading":                 {reading, func(*run) {}, ""},
		"overload":                  {sale, func(r *run) { r.open, r.heard.refused = true, some }, ""},
		"an order is lost":          {sale, func(r *run) { r.counts["rows"] = 99 }, "there are 99 new rows"},
		"orders nobody asked for":   {sale, func(r *run) { r.counts["rows"] = 109 }, "there are 109 new rows"},
		"no fsync of the database":  {sale, func(r *run) { r.counts["fsyncs"] = 0 }, "without an fsync"},
		"no message":                {sale, func(r *run) { r.counts["messages"] = 0 }, "stored no message"},
		"a buyer is refused":        {sale, func(r *run) { r.heard.refused = some[:1] }, "1 of 101 answers were refusals"},
		"a buyer hears nothing":     {sale, func(r *run) { r.heard.broken = 1 }, "1 requests had no answer"},
		"nobody is answered":        {reading, func(r *run) { r.heard.good = nil }, "there was no answer"},
		"a refusal that sells":      {refusal, func(r *run) { r.heard.good = some[:1] }, "1 of 101 answers were no refusal"},
		"a refusal of another kind": {refusal, func(r *run) { clear(r.counts) }, "counts 0 × SOLD_OUT"},
		"a reading that is refused": {reading, func(r *run) { r.heard.refused = some[:2] }, "2 of 102 answers were refusals"},
	} {
		r := test.run
		r.counts = maps.Clone(r.counts)
		test.spoil(&r)
		err := r.account(r.sells, model.ModeAsync, r.open, r.heard, r.counts)
		check.That(t, (err == nil) == (test.want == "") && (err == nil || strings.Contains(err.Error(), test.want)),
			"%s: %v", name, err)
	}
}

// What was due while the service stands still is late. The generator reads answers, refusals and broken connections.
func TestLatenciesCountFromWhenARequestWasDue(t *testing.T) {
	t.Parallel()
	network := check.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer network.Close()
	const stalls = 300 * time.Millisecond
	go func() {
		conn, err := network.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for lines, n := bufio.NewReader(conn), 0; ; n++ {
			line, err := lines.ReadString('\n')
			switch {
			case err != nil || line == "10\n":
				return // and the connection breaks
			case line == "2\n":
				<-time.After(stalls)
			}
			status := map[bool]string{true: "409 Conflict", false: "202 Accepted"}[line == "5\n"]
			_, _ = io.WriteString(conn, "HTTP/1.1 "+status+"\r\nX: y\r\nContent-Length: 2\r\n\r\n{}")
		}
	}()
	conn := check.Value(net.Dial("tcp", network.Addr().String()))(t)
	defer conn.Close()
	numbered := func(buffer []byte, n int) []byte { return append(strconv.AppendInt(buffer, int64(n), 10), '\n') }
	l := load{rate: 100, lasts: time.Second, request: numbered}
	var h heard
	var next atomic.Int64
	err := l.ask(conn, &next, time.Now(), &h)
	check.That(t, err != nil && h.broken == 1 && h.sent == 11, "%v, %d sent, %d broken", err, h.sent, h.broken)
	check.That(t, len(h.good) == 9 && len(h.refused) == 1, "%d good, %d refused", len(h.good), len(h.refused))
	waited := stalls - 30*time.Millisecond // the refused one was due 30 ms behind the one that stalled
	check.That(t, h.good[2] >= stalls && h.refused[0] >= waited, "good %v, refused %v", h.good, h.refused)
}

//go:build faults

//part:packaging
package bench

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestMain(m *testing.M) {
	if address := os.Getenv("BENCH_FLOOR"); address != "" {
		fmt.Fprintln(os.Stderr, serveFloor(address))
		os.Exit(1)
	}
	testserver.Main(m)
}

const secret = "a secret of the benchmark, 32 bytes or more"

type harness struct {
	rounds, vouchers, instances int
	lasts                       time.Duration // of each measurement
	connections                 []int         // to each instance
	open                        []float64     // rates of open loads, as a part of what the closed one reached
	cases                       []workCase
	builds                      []build // this checkout's last: benchstat compares with the first one it sees

	yardstick *testserver.Command
	address   string // of the yardstick
	authority *token.Authority
	tokens    []string
	client    *http.Client
	record    record
}

type build struct{ name, program string }

// What the service costs, and that its accounts agree with what clients heard. `make bench` is the long form.
//
//nolint:paralleltest // what it measures is not for a machine that is busy with other tests
func TestBench(t *testing.T) {
	h := prepare(t)
	for round := range h.rounds {
		for i := range h.cases {
			c := h.cases[(i+round)%len(h.cases)] // another one is the first in every round
			for j := range h.builds {
				b := h.builds[(j+round)%len(h.builds)]
				t.Run(fmt.Sprintf("%s/%s/%d", c.name, b.name, round+1), func(t *testing.T) { h.round(t, c, b) })
			}
		}
	}
	if path := os.Getenv("BENCH_RECORD"); path != "" {
		check.Must(t, os.WriteFile(path, []byte(h.page()), 0o600))
	}
}

func prepare(t *testing.T) *harness {
	h := &harness{
		rounds: number(t, "ROUNDS", "1"), vouchers: number(t, "VOUCHERS", "1"),
		instances: number(t, "INSTANCES", "1"),
	}
	h.lasts = time.Duration(number(t, "SECONDS", "1")) * time.Second
	for _, field := range words("CONNECTIONS", "32") {
		h.connections = append(h.connections, check.Value(strconv.Atoi(field))(t))
	}
	for _, field := range words("OPEN", "0.5") {
		h.open = append(h.open, check.Value(strconv.ParseFloat(field, 64))(t))
	}
	for _, name := range words("CASES", "async-api sold-out") {
		all := slices.DeleteFunc(cases(), func(c workCase) bool {
			return name != "all" && c.name != name && (name != "record" || c.beside)
		})
		check.That(t, len(all) > 0, "there is no case %q", name)
		h.cases = append(h.cases, all...)
	}
	for _, path := range words("BINARY", "") {
		if !filepath.IsAbs(path) {
			path = check.Value(filepath.Abs(filepath.Join("../../..", path)))(t)
		}
		check.Value(os.Stat(path))(t)
		h.builds = append(h.builds, build{"other", path})
	}
	h.builds = append(h.builds, build{"this", testserver.Program(t)})
	h.authority, h.client = check.Value(remote.Authority(secret))(t), remote.Client(t, "", 16)
	const ordersASecond = 40_000 // more than are reached
	for n := range ordersASecond * max(1, int(h.lasts.Seconds())) {
		h.tokens = append(h.tokens, h.bearer(t, userName(n))+"\r\n\r\n")
	}
	program := filepath.Join(t.TempDir(), "yardstick")
	said, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./yardstick").CombinedOutput()
	check.Need(t, err == nil, "build the yardstick: %v\n%s", err, said)
	h.address = testserver.Address(t)
	h.yardstick = testserver.Run(t, environ(), program, "-listen", h.address, "-secret", secret)
	check.Eventually(t, "the yardstick answers", func() bool {
		return (remote.Service{URL: "http://" + h.address, Client: h.client}).Status("/") != 0
	})
	return h
}

func words(variable, short string) []string {
	if value := os.Getenv("BENCH_" + variable); value != "" {
		short = value
	}
	return strings.Fields(short)
}

func number(t *testing.T, variable, short string) int {
	t.Helper()
	return check.Value(strconv.Atoi(strings.Join(words(variable, short), "")))(t)
}

func userName(n int) string { return fmt.Sprintf("b%07d", n) }

func (h *harness) bearer(t testing.TB, user string) string {
	t.Helper()
	return check.Value(h.authority.Issue(token.Claims{Subject: user, Role: model.RoleUser}, 24*time.Hour))(t)
}

// openConnections are more than an open load needs while the service answers within its budgets.
const openConnections = 512

// round measures a case of a build once: on each number of connections, and under the open loads.
func (h *harness) round(t *testing.T, c workCase, b build) {
	s := h.begin(t, c, b.program)
	if c.floor != nil {
		h.write(c, "floor", b, c.floor(s))
		return
	}
	connections, open := h.connections, h.open
	if c.narrow {
		connections, open = connections[:1], nil
	}
	w := c.prepare(s)
	s.load(w, h.connections[0], 0, time.Second).run(t) // everything is warm
	point := func(name string, connections, rate int) (reached float64) {
		if c.sells {
			w = c.prepare(s)
		}
		s.drained()
		before := h.yardsticks(t, connections)
		f, err := s.measure(w, s.load(w, connections, rate, h.lasts))
		if err != nil {
			t.Errorf("%s, %s: %v", c.name, name, err)
			return 0
		}
		after := h.yardsticks(t, connections)
		f["yardstick-µs/op"] = (before["µs"] + after["µs"]) / 2
		f["yardsticks/op"] = f["all-µs/op"] / f["yardstick-µs/op"]
		if rate == 0 {
			f["of-yardstick"] = 2 * f["answers/s"] / (before["rate"] + after["rate"])
		}
		h.write(c, name, b, f)
		return f["answers/s"]
	}
	for i, connections := range connections {
		reached := point(strconv.Itoa(connections), connections, 0)
		for _, part := range open {
			if i == 0 && c.sells && reached > 0 {
				point(fmt.Sprintf("open-%v", part), openConnections, int(part*reached))
			}
		}
	}
	s.audit()
}

func (h *harness) yardsticks(t *testing.T, connections int) map[string]float64 {
	t.Helper()
	rate, µs := h.bare(t, h.yardstick, h.address, connections)
	return map[string]float64{"rate": rate, "µs": µs}
}

// bare asks a program that answers everybody with the same, and tells its answers a second and the CPU time of one.
func (h *harness) bare(t testing.TB, program *testserver.Command, address string, connections int) (rate, µs float64) {
	t.Helper()
	w := work{heads: purchases("00000000"), ends: h.tokens}
	before := testserver.CPU(t, program.PID())
	told := load{addresses: []string{address}, connections: connections, lasts: h.lasts / 3, request: w.request}.run(t)
	check.Need(t, len(told.good) != 0 && len(told.refused)+told.broken <= 0,
		"%d good answers, %d refused, %d broken", len(told.good), len(told.refused), told.broken)
	cpu := testserver.CPU(t, program.PID()) - before
	return told.rate(), float64(cpu.Microseconds()) / float64(len(told.good))
}

func (h *harness) write(c workCase, load string, b build, figures map[string]float64) {
	fmt.Fprintf(os.Stdout, "\nBenchmarkRequest/case=%s/load=%s/build=%s 1", c.name, load, b.name)
	for _, unit := range slices.Sorted(maps.Keys(figures)) {
		if figures[unit] != 0 {
			fmt.Fprintf(os.Stdout, " %.5g %s", figures[unit], unit)
		}
	}
	fmt.Fprintln(os.Stdout)
	if b.name == "this" {
		h.record.add(c.name+" "+load, figures)
	}
}

// account says where the clients' counts and the service's or its servers' differ. Only an open load may be refused.
func (w work) account(sells bool, mode model.OrderMode, open bool, told heard, counted counts) error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	rows, good, refused := counted["rows"], len(told.good), len(told.refused)
	refuse(good+refused == 0, "there was no answer")
	refuse(told.broken > 0, "%d requests had no answer, or a late one", told.broken)
	refuse(!w.opposes && !open && refused > 0, "%d of %d answers were refusals", refused, good+refused)
	refuse(!sells && rows != 0 || sells && rows != float64(good), "%d answers were good, and there are %.0f new rows",
		good, rows)
	refuse(sells && counted["fsyncs"] <= 0, "the database wrote %.0f orders without an fsync", rows)
	refuse(sells && mode == model.ModeAsync && counted["messages"] <= 0, "the queue stored no message for %.0f orders",
		rows)
	if w.opposes {
		placed := counted["seckill_orders_placed_total "+string(w.code)]
		refuse(good > 0, "%d of %d answers were no refusal", good, good+refused)
		refuse(placed != float64(refused), "%d answers, and the service counts %.0f × %s", refused, placed, w.code)
	}
	return errors.Join(errs...)
}

type work struct {
	heads   []string // every request begins with one of these, in turn
	ends    []string // and ends with one of these, in turn: a token, so that each has a user of its own
	code    model.Code
	opposes bool // every answer is a refusal with that code
}

type workCase struct {
	name       string
	settings   []string
	mode       model.OrderMode
	ownProcess bool // the worker is a process of its own, which is away while it is measured
	free       bool // the vouchers cost nothing
	locks      bool // the lock lies on three instances of its own
	sells      bool // every answer is an accepted order, so that each measurement needs vouchers of its own
	spread     int  // over so many vouchers; 0: as the run says
	processes  int  // so many instances; 0: as the run says
	narrow     bool // on the first number of connections alone, without an open load
	beside     bool // no part of the record
	prepare    func(*session) work
	floor      func(*session) map[string]float64 // instead of a sale: the least that something costs
}

func cases() []workCase {
	none, multilock := []string{"SECKILL_LOCK_MODE=none"}, []string{"SECKILL_LOCK_MODE=multilock"}
	free := []string{"SECKILL_CODE_KEY=a key of codes of the benchmark, 32 bytes or more"}
	selling := (*session).selling
	const async, sync = model.ModeAsync, model.ModeSync
	return []workCase{
		// The same process persists meanwhile.
		{name: "async", mode: async, sells: true, prepare: selling},
		{name: "sync", mode: sync, sells: true, prepare: selling},
		// This case goes without the user's lock.
		{name: "sync-none", mode: sync, settings: none, sells: true, narrow: true, prepare: selling},
		{name: "multilock", mode: async, settings: multilock, locks: true, sells: true, narrow: true, prepare: selling},
		{name: "async-100", mode: async, spread: 100, sells: true, narrow: true, prepare: selling},
		{name: "sync-100", mode: sync, spread: 100, sells: true, narrow: true, prepare: selling},
		{name: "async-4", mode: async, processes: 4, sells: true, narrow: true, prepare: selling},
		{name: "sync-4", mode: sync, processes: 4, sells: true, narrow: true, prepare: selling},
		{name: "async-api", mode: async, ownProcess: true, sells: true, narrow: true, prepare: selling},
		{name: "sync-expiry", mode: sync, sells: true, beside: true, prepare: (*session).lapsing},
		// Orders that cost nothing, which are paid where they are made.
		{name: "sync-free", mode: sync, settings: free, free: true, sells: true, beside: true, prepare: selling},
		{name: "async-free", mode: async, settings: free, free: true, sells: true, beside: true, prepare: selling},
		{name: "sold-out", mode: async, narrow: true, prepare: (*session).soldOut},
		{name: "sold-out-sync", mode: sync, narrow: true, prepare: (*session).soldOut},
		{name: "duplicate", mode: async, beside: true, prepare: (*session).duplicate}, // the same users again
		{name: "not-started", mode: async, beside: true, prepare: (*session).notStarted},
		{name: "voucher", mode: async, beside: true, prepare: (*session).voucherRead},
		{name: "order-wait", mode: async, beside: true, prepare: (*session).orderRead}, // decided already
		{name: "floor-http", mode: sync, floor: (*session).floorHTTP},
		{name: "floor-insert", mode: sync, floor: (*session).floorInsert},
		{name: "floor-reserve", mode: sync, floor: (*session).floorReserve},
		{name: "floor-publish", mode: sync, floor: (*session).floorPublish},
	}
}

func purchases(vouchers ...string) (heads []string) {
	for _, id := range vouchers {
		heads = append(heads, "POST /api/v1/vouchers/"+id+
			"/seckill HTTP/1.1\r\nHost: seckill\r\nContent-Length: 0\r\nAuthorization: Bearer ")
	}
	return heads
}

const never = 10_000_000

func (s *session) selling() work {
	s.Helper()
	return s.buying(s.onSale(cmp.Or(s.spread, s.vouchers), never, -time.Hour)...)
}

func (s *session) buying(vouchers ...string) work {
	return work{heads: purchases(vouchers...), ends: s.tokens}
}

// lapsing is selling beside a hundred thousand orders of the same voucher whose time ends together, as the load begins.
func (s *session) lapsing() work {
	s.Helper()
	const orders, atOnce = 100_000, 5000
	id := s.onSale(1, never, -time.Hour)[0]
	does := func(statement string, args ...any) {
		check.Must(s, check.ErrorOf(s.db.ExecContext(s.Context(), statement, args...)))
	}
	for from := 0; from < orders; from += atOnce {
		does("INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at, unpaid_at, expires_at) "+
			"SELECT CONCAT(LPAD(seq, 26, '0'), '.', ?), ?, MD5(seq), 'unpaid', 1000, 'CNY', NOW(6), NOW(6), NOW(6) + INTERVAL 1 HOUR "+
			"FROM "+testserver.Numbers(from+1, from+atOnce), id, id)
	}
	does("UPDATE vouchers SET remaining = remaining - ? WHERE id = ?", orders, id)
	yardstick := s.lasts/3 + time.Second // which comes before the load
	does("UPDATE orders SET expires_at = NOW(6) + INTERVAL ? MICROSECOND WHERE voucher_id = ?", yardstick.Microseconds(), id)
	return s.buying(id)
}

func (s *session) soldOut() work {
	s.Helper()
	id := s.onSale(1, 1, -time.Hour)[0]
	got, err := s.instances[0].Place(s, id, "early")
	check.Need(s, err == nil && got.Sells(), "the only unit is bought: %d %s %v", got.Status, got.Body, err)
	s.drained()
	return s.refusing(id, model.CodeSoldOut)
}

func (s *session) notStarted() work {
	s.Helper()
	return s.refusing(s.onSale(1, never, time.Hour)[0], model.CodeNotStarted)
}

// refusing waits until a buyer hears what all are to hear.
func (s *session) refusing(voucher string, code model.Code) work {
	s.Helper()
	check.Eventually(s, "a buyer hears "+string(code), func() bool {
		got, err := s.instances[0].Place(s, voucher, userName(0))
		return err == nil && got.Status == http.StatusConflict && got.Code() == code
	})
	return work{heads: purchases(voucher), ends: s.tokens, opposes: true, code: code}
}

func (s *session) duplicate() work {
	s.Helper()
	w := s.filled()
	w.opposes, w.code = true, model.CodeAlreadyOrdered
	return w
}

func (s *session) filled() work {
	s.Helper()
	w := s.selling()
	told := s.load(w, s.connections[0], 0, time.Second).run(s)
	s.drained()
	w.ends = w.ends[:told.sent]
	return w
}

func (s *session) voucherRead() work {
	s.Helper()
	id := s.onSale(1, never, -time.Hour)[0]
	return work{
		heads: []string{"GET /api/v1/vouchers/" + id + " HTTP/1.1\r\nHost: seckill\r\n\r\n"},
		ends:  []string{""},
	}
}

func (s *session) orderRead() work {
	s.Helper()
	s.filled()
	rows := check.Value(s.db.QueryContext(s.Context(), "SELECT id, user_id FROM orders"))(s)
	defer rows.Close()
	w := work{heads: []string{"GET /api/v1/orders/"}}
	for rows.Next() {
		var id, user string
		check.Must(s, rows.Scan(&id, &user))
		w.ends = append(w.ends, id+"?wait=1s HTTP/1.1\r\nHost: seckill\r\nAuthorization: Bearer "+s.bearer(s, user)+
			"\r\n\r\n")
	}
	check.Must(s, rows.Err())
	return w
}

func (s *session) load(w work, connections, rate int, lasts time.Duration) load {
	l := load{connections: connections * len(s.instances), rate: rate, lasts: lasts, request: w.request}
	for _, i := range s.instances {
		l.addresses = append(l.addresses, i.URL[len("http://"):])
	}
	return l
}

func (w work) request(buffer []byte, n int) []byte {
	return append(append(buffer, w.heads[n%len(w.heads)]...), w.ends[n%len(w.ends)]...)
}

// measure has work sent and holds the service to account. Without an error it returns the figures, by their units.
func (s *session) measure(w work, l load) (map[string]float64, error) {
	for _, i := range s.instances {
		testserver.ForgetPeak(s, i.PID())
	}
	before := s.count(true)
	told := l.run(s)
	if !s.ownProcess {
		s.drained()
	}
	counted := s.count(false).since(before)
	total, drain := counted, 0.0
	if s.ownProcess { // the figures are those without a worker; then one drains what has gathered
		drain = s.drain()
		total = s.count(false).since(before)
	}
	if err := w.account(s.sells, s.mode, l.rate > 0, told, total); err != nil {
		return nil, err
	}
	n := float64(told.answers())
	f := map[string]float64{
		"answers/s": told.rate(), "p50-ms": milliseconds(told.good, 0.5), "p99-ms": milliseconds(told.good, 0.99),
		"refused-p99-ms": milliseconds(told.refused, 0.99), "generator-µs/op": float64(told.cpu.Microseconds()) / n,
		"allocs/op": counted["go_memstats_mallocs_total"] / n, "B/op": counted["go_memstats_alloc_bytes_total"] / n,
		"orders/s-drained": drain,
	}
	for _, name := range []string{"product-µs", "mariadb-µs", "redis-µs", "nats-µs", "redis-commands", "statements", "fsyncs", "messages"} {
		f[name+"/op"] = counted[name] / n
	}
	f["all-µs/op"] = f["product-µs/op"] + f["mariadb-µs/op"] + f["redis-µs/op"] + f["nats-µs/op"]
	for group, name := range map[string]string{
		"reserve": "seckill_reserve_group_size", "publish": "seckill_publish_group_size",
		"persist": "seckill_persist_group_size", "commit": "seckill_order_batch_size",
	} {
		if groups := counted[name+"_count"]; groups > 0 {
			f[group+"-group"] = counted[name+"_sum"] / groups
		}
	}
	for _, i := range s.instances {
		f["MiB"] += float64(testserver.PeakMemory(s, i.PID())) / (1 << 20)
	}
	return f, nil
}

// drainMemory is what a worker may take at most, however long the queue is.
const drainMemory = 300 << 20

// drain lets one worker empty the queue, and returns its orders a second from its first transaction on.
func (s *session) drain() float64 {
	s.Helper()
	s.worker = s.start("worker")
	defer func() {
		check.Must(s, s.worker.Kill())
		s.worker = nil
	}()
	persisted := func() float64 { return s.scrape(s.worker)["seckill_reservations_persisted_total"] }
	s.await("the worker has begun", func() bool { return persisted() > 0 || s.messages(false) == 0 })
	first, done := time.Now(), persisted()
	s.drained()
	peak := testserver.PeakMemory(s, s.worker.PID())
	check.That(s, peak <= drainMemory, "a worker that drains a long queue took %d MiB, more than %d", peak>>20,
		drainMemory>>20)
	return (persisted() - done) / time.Since(first).Seconds()
}

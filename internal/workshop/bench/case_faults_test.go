//go:build faults

//part:packaging

package bench

import (
	"net/http"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// work is what is sent, and what has to become of it.
type work struct {
	heads   []string // every request begins with one of these, in turn
	ends    []string // and ends with one of these, in turn: a token, so that each has a user of its own
	code    model.Code
	opposes bool // every answer is a refusal with that code
}

// workCase is one kind of request, and the service that it is sent to.
type workCase struct {
	name       string
	settings   []string
	mode       model.OrderMode
	ownProcess bool // the worker is a process of its own, which is away while it is measured
	locks      bool // the lock lies on three instances of its own
	sells      bool // every answer is an accepted order, so that each measurement needs vouchers of its own
	prepare    func(*session) work
}

// cases are what is measured.
func cases() []workCase {
	none, multilock := []string{"SECKILL_LOCK_MODE=none"}, []string{"SECKILL_LOCK_MODE=multilock"}
	selling := (*session).selling
	return []workCase{
		{name: "async", mode: model.ModeAsync, sells: true, prepare: selling}, // persisted by the same process meanwhile
		{name: "async-api", mode: model.ModeAsync, ownProcess: true, sells: true, prepare: selling},
		{name: "sync", mode: model.ModeSync, sells: true, prepare: selling},
		{name: "sync-none", mode: model.ModeSync, settings: none, sells: true, prepare: selling}, // without the user's lock
		{name: "multilock", mode: model.ModeAsync, settings: multilock, locks: true, sells: true, prepare: selling},
		{name: "sold-out", mode: model.ModeAsync, prepare: (*session).soldOut},
		{name: "sold-out-sync", mode: model.ModeSync, prepare: (*session).soldOut},
		{name: "duplicate", mode: model.ModeAsync, prepare: (*session).duplicate}, // the same users again
		{name: "not-started", mode: model.ModeAsync, prepare: (*session).notStarted},
		{name: "voucher", mode: model.ModeAsync, prepare: (*session).voucherRead},
		{name: "order-wait", mode: model.ModeAsync, prepare: (*session).orderRead}, // decided already
	}
}

// purchases begin requests to buy, whose ends are tokens.
func purchases(vouchers ...string) (heads []string) {
	for _, id := range vouchers {
		heads = append(heads, "POST /api/v1/vouchers/"+id+"/seckill HTTP/1.1\r\nHost: seckill\r\nContent-Length: 0\r\nAuthorization: Bearer ")
	}
	return heads
}

// never is a stock that is never sold out.
const never = 10_000_000

func (s *session) selling() work {
	s.Helper()
	return work{heads: purchases(s.onSale(s.vouchers, never, -time.Hour)...), ends: s.tokens}
}

func (s *session) soldOut() work {
	s.Helper()
	id := s.onSale(1, 1, -time.Hour)[0]
	if got, err := s.instances[0].Place(s, id, "early"); err != nil || !got.Sells() {
		s.Fatalf("the only unit is bought: %d %s %v", got.Status, got.Body, err)
	}
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

// filled are the first users, who have bought.
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
	return work{heads: []string{"GET /api/v1/vouchers/" + id + " HTTP/1.1\r\nHost: seckill\r\n\r\n"}, ends: []string{""}}
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
		w.ends = append(w.ends, id+"?wait=1s HTTP/1.1\r\nHost: seckill\r\nAuthorization: Bearer "+s.bearer(s, user)+"\r\n\r\n")
	}
	check.Must(s, rows.Err())
	return w
}

// load is that work on so many connections to each instance.
func (s *session) load(w work, connections, rate int, lasts time.Duration) load {
	l := load{connections: connections * len(s.instances), rate: rate, lasts: lasts, request: w.request}
	for _, i := range s.instances {
		l.addresses = append(l.addresses, i.URL[len("http://"):])
	}
	return l
}

// request appends the n-th request.
func (w work) request(buffer []byte, n int) []byte {
	return append(append(buffer, w.heads[n%len(w.heads)]...), w.ends[n%len(w.ends)]...)
}

// measure has work sent and holds the service to account. Without an error it returns the figures, by their units.
func (s *session) measure(w work, l load) (map[string]float64, error) {
	s.Helper()
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
	return (persisted() - done) / time.Since(first).Seconds()
}

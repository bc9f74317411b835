package queue_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/embedded"
	"seckill/internal/testserver"
	"seckill/model"
	"seckill/queue"
)

func TestMain(m *testing.M) {
	// These tests wait for servers that are away and compute next to nothing: more of them at a time than
	// there are cores. -parallel wins, because the command line is read later.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testserver.Main(m)
}

// patience is how long an event is waited for: far more than it takes, on a
// busy machine under the race detector too.
const patience = 30 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// journal is a log that can be searched.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) has(parts ...string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		found := true
		for _, part := range parts {
			found = found && strings.Contains(line, part)
		}
		if found {
			return true
		}
	}
	return false
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// fixture is a queue on an embedded server of the test's own, and a plain
// client beside it.
type fixture struct {
	*queue.Queue
	server *embedded.NATS
	js     jetstream.JetStream
	log    *journal
}

const (
	deployment = "abcdefgh01234567"
	orders     = "SECKILL_ORDERS_ABCDEFGH01234567"
	dead       = "SECKILL_DEAD_ABCDEFGH01234567"
	subject    = "seckill.abcdefgh01234567.orders"
)

func newFixture(t testing.TB, change func(*queue.Options)) *fixture {
	t.Helper()
	log := &journal{}
	server, err := embedded.StartNATS(t.TempDir(), slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(server.Close)
	f := &fixture{server: server, log: log, js: plain(t, nats.InProcessServer(server), "")}
	f.Queue = f.open(t, change)
	return f
}

// open opens one more queue on the same server.
func (f *fixture) open(t testing.TB, change func(*queue.Options)) *queue.Queue {
	t.Helper()
	q, err := f.tryOpen(t, change)
	must(t, err)
	return q
}

func (f *fixture) tryOpen(t testing.TB, change func(*queue.Options)) (*queue.Queue, error) {
	t.Helper()
	o := queue.Options{InProcess: f.server, Deployment: deployment, Log: f.log.logger()}
	if change != nil {
		change(&o)
	}
	return openQueue(t, o)
}

func openQueue(t testing.TB, o queue.Options) (*queue.Queue, error) {
	t.Helper()
	q, err := queue.Open(t.Context(), o)
	if err == nil {
		t.Cleanup(func() { q.Close(context.Background()) })
	}
	return q, err
}

// plain is a client that knows nothing of us.
func plain(t testing.TB, option nats.Option, url string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, option)
	must(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	must(t, err)
	return js
}

// some are orders of one voucher that differ in everything else.
func some(name string, n int) []model.Reservation {
	const voucher = "v0"
	all := make([]model.Reservation, n)
	for i := range all {
		all[i] = model.Reservation{
			Order: model.Order{
				ID: model.OrderID(fmt.Sprintf("%s-%06d", name, i), voucher), VoucherID: voucher, UserID: fmt.Sprintf("u:%s.%d", name, i),
				Status: model.OrderProcessing, Price: int64(1000 + i), Currency: "CNY",
				CreatedAt: time.UnixMicro(1_700_000_000_000_000 + int64(i)).UTC(),
			},
			Epoch: int64(1 + i%3),
		}
	}
	return all
}

// consume runs a worker until the test ends or the returned function is called.
func consume(t testing.TB, q *queue.Queue, persist queue.Persist, o queue.ConsumeOptions) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Consume(ctx, persist, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Consume: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// ledger is a persist that remembers.
type ledger struct {
	mu      sync.Mutex
	calls   [][]model.Reservation
	times   map[string]int
	verdict func(r model.Reservation, times int) error // nil: all is well
}

func (l *ledger) persist(_ context.Context, orders []model.Reservation) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.times == nil {
		l.times = make(map[string]int)
	}
	l.calls = append(l.calls, orders)
	verdicts := make([]error, len(orders))
	for i, r := range orders {
		l.times[r.ID]++
		if l.verdict != nil {
			verdicts[i] = l.verdict(r, l.times[r.ID])
		}
	}
	return verdicts
}

// seen is how often each order was handed out.
func (l *ledger) seen() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.times)
}

// eventually waits for a condition that becomes true by itself.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("it never happened: %s", what)
		case <-again.C:
		}
	}
}

// drained waits until nothing is left in the queue.
func drained(t testing.TB, q *queue.Queue) model.Backlog {
	t.Helper()
	var backlog model.Backlog
	eventually(t, "the queue is empty", func() bool {
		var err error
		backlog, err = q.Backlog(t.Context())
		return err == nil && backlog.Messages == 0
	})
	return backlog
}

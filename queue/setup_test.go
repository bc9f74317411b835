package queue_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/embedded"
	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
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

// fixture is a queue on an embedded server of the test's own, and a plain
// client beside it.
type fixture struct {
	*queue.Queue
	server *embedded.NATS
	js     jetstream.JetStream
	log    *check.Log
}

const (
	deployment = "abcdefgh01234567"
	orders     = "SECKILL_ORDERS_ABCDEFGH01234567"
	dead       = "SECKILL_DEAD_ABCDEFGH01234567"
	subject    = "seckill.abcdefgh01234567.orders"
)

func newFixture(t testing.TB, change func(*queue.Options)) *fixture {
	t.Helper()
	log := &check.Log{}
	server := check.Value(embedded.StartNATS(t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(server.Close)
	f := &fixture{server: server, log: log, js: plain(t, nats.InProcessServer(server), "")}
	f.Queue = f.open(t, change)
	return f
}

// open opens one more queue on the same server.
func (f *fixture) open(t testing.TB, change func(*queue.Options)) *queue.Queue {
	t.Helper()
	q := check.Value(f.tryOpen(t, change))(t)
	return q
}

func (f *fixture) tryOpen(t testing.TB, change func(*queue.Options)) (*queue.Queue, error) {
	t.Helper()
	o := queue.Options{InProcess: f.server, Deployment: deployment, Log: f.log.Logger()}
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
	conn := check.Value(nats.Connect(url, option))(t)
	t.Cleanup(conn.Close)
	js := check.Value(jetstream.New(conn))(t)
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

// drained waits until nothing is left in the queue.
func drained(t testing.TB, q *queue.Queue) model.Backlog {
	t.Helper()
	var backlog model.Backlog
	check.Eventually(t, "the queue is empty", func() bool {
		var err error
		backlog, err = q.Backlog(t.Context())
		return err == nil && backlog.Messages == 0
	})
	return backlog
}

// handedOut checks how many orders were handed out.
func (l *ledger) handedOut(t *testing.T, want int) {
	t.Helper()
	check.Equal(t, "orders handed out", len(l.seen()), want)
}

// handOut has everything handed out that is in the queue.
func handOut(t *testing.T, q *queue.Queue) *ledger {
	t.Helper()
	l := &ledger{}
	consume(t, q, l.persist, queue.ConsumeOptions{})
	drained(t, q)
	return l
}

// waiting checks how many messages wait.
func waiting(t *testing.T, q *queue.Queue, want int64) {
	t.Helper()
	check.Equal(t, "messages that wait", check.Value(q.Backlog(t.Context()))(t).Messages, want)
}

// bare is an embedded server on which nothing of ours has been made yet.
func bare(t *testing.T) *fixture {
	t.Helper()
	server := check.Value(embedded.StartNATS(t.TempDir(), slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(server.Close)
	return &fixture{server: server, log: &check.Log{}, js: plain(t, nats.InProcessServer(server), "")}
}

// of are n orders of one voucher.
func of(voucherID, name string, n int) []model.Reservation {
	all := some(name, n)
	for i := range all {
		all[i].ID, all[i].VoucherID = model.OrderID(fmt.Sprintf("%s-%d", name, i), voucherID), voucherID
	}
	return all
}

// backlogOf asks for the backlog of one voucher.
func (f *fixture) backlogOf(t *testing.T, voucherID string) model.Backlog {
	t.Helper()
	b := check.Value(f.BacklogOf(t.Context(), voucherID))(t)
	return b
}

// letters are all dead letters.
func letters(t *testing.T, q *queue.Queue) []model.DeadLetter {
	t.Helper()
	var all []model.DeadLetter
	must(t, q.DeadLetters(t.Context(), func(l model.DeadLetter) error { all = append(all, l); return nil }))
	return all
}

// wantLetters checks how many letters there are.
func wantLetters(t *testing.T, q *queue.Queue, want int) {
	t.Helper()
	if all := letters(t, q); len(all) != want {
		t.Errorf("%d letters, want %d: %+v", len(all), want, all)
	}
}

func text(id, user string) string {
	return fmt.Sprintf(`{"id":%q,"user":%q,"epoch":3,"created":1700000000000000,"price":1000,"currency":"CNY"}`, id, user)
}

// atServer opens a queue on a server process, maybe through a proxy.
func atServer(t *testing.T, url string) (*queue.Queue, *check.Log) {
	t.Helper()
	log := &check.Log{}
	q := check.Value(openQueue(t, queue.Options{URL: url, Deployment: deployment, Log: log.Logger()}))(t)
	return q, log
}

// wire is a proxy in front of a server that can lose what is said with its connection.
type wire struct {
	*testserver.Proxy

	mu   sync.Mutex
	word []byte // what contains it is lost
	lost int
}

func newWire(t testing.TB, target string) *wire {
	t.Helper()
	w := &wire{}
	w.Proxy = testserver.NewProxy(t, target, func(client, server net.Conn) {
		var answers sync.WaitGroup
		answers.Go(func() { carry(server, client, w.passes) })
		carry(client, server, w.passes)
		answers.Wait()
	})
	return w
}

func (w *wire) url() string { return "nats://" + w.Addr() }

// cutAt makes the next request or answer that contains a word be lost.
func (w *wire) cutAt(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.word = []byte(word)
}

// cuts is how much was lost.
func (w *wire) cuts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// carry takes bytes from one side to the other until one of them is closed, or something must not pass.
func carry(from, to net.Conn, passes func([]byte) bool) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !passes(buffer[:n]) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (w *wire) passes(said []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.word == nil || !bytes.Contains(said, w.word) {
		return true
	}
	w.word = nil
	w.lost++
	return false
}

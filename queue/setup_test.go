package queue_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
)

func TestMain(m *testing.M) {
	// These tests mostly wait: more run at a time than there are cores. -parallel wins, because it is read later.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testserver.Main(m)
}

type fixture struct {
	*queue.Queue
	options               queue.Options
	orders, dead, subject string // as the server knows them
	js                    jetstream.JetStream
	log                   *check.Log
}

// heldFor exceeds a machine's stops, so nothing in hand comes again, and is less than the common deadline.
const heldFor = 30 * time.Second

// onServer is a deployment on a server on which nothing of it has been made yet.
func onServer(t testing.TB, options queue.Options) *fixture {
	t.Helper()
	f := &fixture{log: &check.Log{}, options: options}
	if f.options.Deployment == "" {
		f.options.Deployment = strings.ToLower(rand.Text())
	}
	f.options.Log, f.options.Slack, f.options.AckWait = f.log.Logger(), check.Deadline, heldFor
	upper := strings.ToUpper(f.options.Deployment)
	f.orders, f.dead, f.subject = "SECKILL_ORDERS_"+upper, "SECKILL_DEAD_"+upper,
		"seckill."+f.options.Deployment+".orders"
	return f
}

func bare(t testing.TB) *fixture {
	t.Helper()
	f := onServer(t, queue.Options{URL: testserver.SharedNATS(t)})
	f.js = plain(t, f.options.URL)
	t.Cleanup(func() {
		_, _ = f.js.DeleteStream(context.Background(), f.orders), f.js.DeleteStream(context.Background(), f.dead)
	})
	return f
}

func newFixture(t testing.TB, change func(*queue.Options)) *fixture {
	t.Helper()
	f := bare(t)
	f.Queue = f.open(t, change)
	return f
}

func at(t testing.TB, url string) *fixture {
	t.Helper()
	f := onServer(t, queue.Options{URL: url})
	f.Queue = f.open(t, func(o *queue.Options) { o.Slack = 0 })
	return f
}

func (f *fixture) open(t testing.TB, change func(*queue.Options)) *queue.Queue {
	t.Helper()
	return check.Value(f.tryOpen(t, change))(t)
}

func (f *fixture) tryOpen(t testing.TB, change func(*queue.Options)) (*queue.Queue, error) {
	t.Helper()
	o := f.options
	if change != nil {
		change(&o)
	}
	q, err := queue.Open(t.Context(), o)
	if err == nil {
		t.Cleanup(func() { q.Close(context.Background()) })
	}
	return q, err
}

func plain(t testing.TB, url string) jetstream.JetStream {
	t.Helper()
	conn := check.Value(nats.Connect(url))(t)
	t.Cleanup(conn.Close)
	return check.Value(jetstream.New(conn))(t)
}

// some are orders of one voucher that differ in everything else.
func some(name string, n int) []model.Reservation {
	const voucher = "v0"
	all := make([]model.Reservation, n)
	for i := range all {
		all[i] = model.Reservation{
			Order: model.Order{
				ID: model.OrderID(fmt.Sprintf("%s-%06d", name, i), voucher), VoucherID: voucher,
				UserID: fmt.Sprintf("u:%s.%d", name, i),
				Status: model.OrderProcessing, Price: int64(1000 + i), Currency: "CNY",
				CreatedAt: time.UnixMicro(1_700_000_000_000_000 + int64(i)).UTC(),
			},
			Epoch: int64(1 + i%3),
		}
	}
	return all
}

func consume(t testing.TB, q *queue.Queue, persist queue.Persist, o queue.ConsumeOptions) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Consume(ctx, persist, o) }()
	stop = sync.OnceFunc(func() {
		cancel()
		check.Is(t, "Consume", <-done, nil)
	})
	t.Cleanup(stop)
	return stop
}

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

func (l *ledger) seen() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.times)
}

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

func (l *ledger) handedOut(t *testing.T, want int) {
	t.Helper()
	check.Equal(t, "orders handed out", len(l.seen()), want)
}

func handOut(t *testing.T, q *queue.Queue) *ledger {
	t.Helper()
	l := &ledger{}
	consume(t, q, l.persist, queue.ConsumeOptions{})
	drained(t, q)
	return l
}

func waiting(t *testing.T, q *queue.Queue, want int64) {
	t.Helper()
	check.Equal(t, "messages that wait", check.Value(q.Backlog(t.Context()))(t).Messages, want)
}

func of(voucherID, name string, n int) []model.Reservation {
	all := some(name, n)
	for i := range all {
		all[i].ID, all[i].VoucherID = model.OrderID(fmt.Sprintf("%s-%d", name, i), voucherID), voucherID
	}
	return all
}

func (f *fixture) backlogOf(t *testing.T, voucherID string) model.Backlog {
	t.Helper()
	return check.Value(f.BacklogOf(t.Context(), voucherID))(t)
}

func letters(t *testing.T, q *queue.Queue) []model.DeadLetter {
	t.Helper()
	var all []model.DeadLetter
	check.Must(t, q.DeadLetters(t.Context(), func(l model.DeadLetter) error { all = append(all, l); return nil }))
	return all
}

func wantLetters(t *testing.T, q *queue.Queue, want int) {
	t.Helper()
	all := letters(t, q)
	check.That(t, len(all) == want, "%d letters, want %d: %+v", len(all), want, all)
}

// outage is a verdict that says nothing of the order's voucher.
func outage() error { return fmt.Errorf("%w: %w", model.ErrOutage, model.Unavailable("away", nil)) }

// stored publishes orders as the other versions do: on a subject below that of all, or on that one.
func (f *fixture) stored(t testing.TB, below string, orders ...string) {
	t.Helper()
	check.Must(t, check.ErrorOf(f.js.Publish(t.Context(), f.subject+below,
		[]byte(`{"v":1,"orders":[`+strings.Join(orders, ",")+`]}`))))
}

// lie checks how many messages lie on the subjects below that of all orders; "" is that one.
func (f *fixture) lie(t testing.TB, want map[string]uint64) {
	t.Helper()
	stream := check.Value(f.js.Stream(t.Context(), f.orders))(t)
	got := map[string]uint64{}
	for subject, messages := range check.Value(stream.Info(t.Context(), jetstream.WithSubjectFilter(">")))(t).State.Subjects {
		got[strings.TrimPrefix(subject, f.subject)] = messages
	}
	check.That(t, maps.Equal(got, want), "messages lie on %v, want %v", got, want)
}

func text(id, user string) string {
	return fmt.Sprintf(`{"id":%q,"user":%q,"epoch":3,"created":1700000000000000,"price":1000,"currency":"CNY"}`, id, user)
}

// wire is a proxy in front of a server that can lose what is said with its connection.
type wire struct {
	*testserver.Proxy

	mu    sync.Mutex
	word  []byte // what contains it is lost
	lost  int
	dials atomic.Int64
}

func newWire(t testing.TB, target string) *wire {
	t.Helper()
	w := &wire{}
	w.Proxy = testserver.NewProxy(t, target, func(client, server net.Conn) {
		w.dials.Add(1)
		var answers sync.WaitGroup
		answers.Go(func() { carry(server, client, w.passes) })
		carry(client, server, w.passes)
		answers.Wait()
	})
	return w
}

func (w *wire) url() string { return "nats://" + w.Addr() }

func (w *wire) cutAt(word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.word = []byte(word)
}

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

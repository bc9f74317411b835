package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"seckill/internal/budget"
	"seckill/internal/refusal"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func someOrders(n int) []order1 {
	orders := make([]order1, n)
	for i := range orders {
		orders[i] = order1{
			ID: fmt.Sprintf("0%025d.v-1", i), User: fmt.Sprintf("issuer:user_%d.x", i), Epoch: 7,
			Created: 1893459600123456,
			Price:   1000, Currency: "CNY",
		}
	}
	return orders
}

// server hands out messages in virtual time, and keeps what it is told of each and when.
type server struct {
	jetstream.JetStream

	began time.Time
	line  chan jetstream.Msg
	log   check.Log

	mu       sync.Mutex
	full     bool                // it stores no message
	isolated int                 // messages below the subject of all vouchers
	stored   uint64              // messages
	told     map[uint64][]string // of a message, by its sequence
}

func newServer(t *testing.T, orders ...int) *server {
	t.Helper()
	s := &server{began: time.Now(), line: make(chan jetstream.Msg, 100_000), told: map[uint64][]string{}}
	for _, n := range orders {
		s.store(roads.subject, check.Value(encode(someOrders(n)))(t))
	}
	return s
}

var roads = names{orders: "S", subject: "orders"}

func (s *server) store(subject string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored++
	s.line <- &sent{server: s, subject: subject, sequence: s.stored, delivered: 1, body: body}
}

func (s *server) refuse(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

func (s *server) PublishMsg(_ context.Context, m *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	s.mu.Lock()
	full := s.full
	if m.Subject != roads.subject {
		s.isolated++
	}
	s.mu.Unlock()
	if full {
		return nil, &jetstream.APIError{
			Code:      http.StatusServiceUnavailable,
			ErrorCode: jetstream.JSErrCodeMessageNotFound, Description: "the stream is full",
		}
	}
	s.store(m.Subject, m.Data)
	return &jetstream.PubAck{}, nil
}

func (s *server) consume(t *testing.T, persist Persist, o ConsumeOptions) (stop func()) {
	t.Helper()
	q := &Queue{
		js: s, names: roads, log: s.log.Logger(), wanted: settings{worker: workerConsumer(ackWait)},
		refused: refusal.New(0),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Consume(ctx, persist, o) }()
	return func() {
		cancel()
		check.Must(t, <-done)
	}
}

func (s *server) note(m *sent, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[m.sequence] = append(s.told[m.sequence], fmt.Sprintf("%s at %v", what, time.Since(s.began)))
	return nil
}

func (s *server) heard(sequence uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.told[sequence], ", ")
}

func (s *server) Consumer(context.Context, string, string) (jetstream.Consumer, error) {
	return worker{server: s}, nil
}

type worker struct {
	jetstream.Consumer

	server *server
}

// Fetch implements jetstream.Consumer. It ends as soon as it has all that it asks for, or at its time.
func (w worker) Fetch(n int, _ ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	b := fetched(make(chan jetstream.Msg))
	go func() {
		defer close(b)
		end := time.NewTimer(budget.Look)
		for range n {
			select {
			case m := <-w.server.line:
				b <- m
			case <-end.C:
				return
			}
		}
	}()
	return b, nil
}

type fetched chan jetstream.Msg

func (b fetched) Messages() <-chan jetstream.Msg { return b }
func (fetched) Error() error                     { return nil }

type sent struct {
	jetstream.Msg

	server              *server
	subject             string
	sequence, delivered uint64
	body                []byte
}

func (m *sent) Data() []byte    { return m.body }
func (m *sent) Subject() string { return m.subject }
func (m *sent) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: m.sequence}, NumDelivered: m.delivered}, nil
}
func (m *sent) Ack() error        { return m.server.note(m, "ack") }
func (m *sent) Nak() error        { return m.server.note(m, "nak") }
func (m *sent) InProgress() error { return m.server.note(m, "sign") }
func (m *sent) NakWithDelay(d time.Duration) error {
	again := *m
	again.delivered++
	time.AfterFunc(d, func() { m.server.line <- &again })
	return m.server.note(m, fmt.Sprintf("nak %v", d))
}

// calls is a persist that notes when it was called with how many orders, and answers with the next verdicts, then well.
type calls struct {
	began    time.Time
	takes    time.Duration
	verdicts []func(n int) []error

	mu   sync.Mutex
	told []string
}

func (c *calls) persist(ctx context.Context, orders []model.Reservation) []error {
	c.mu.Lock()
	c.told = append(c.told, fmt.Sprintf("%d at %v", len(orders), time.Since(c.began)))
	verdict := func(n int) []error { return make([]error, n) }
	if len(c.verdicts) > 0 {
		verdict, c.verdicts = c.verdicts[0], c.verdicts[1:]
	}
	c.mu.Unlock()
	select {
	case <-time.After(c.takes):
		return verdict(len(orders))
	case <-ctx.Done():
		return []error{ctx.Err()}
	}
}

func first(err error) func(int) []error {
	return func(n int) []error { return append([]error{err}, make([]error, n-1)...) }
}

func outage(err error) error { return fmt.Errorf("commit: %w: %w", model.ErrOutage, err) }

// A full message leaves at once, and a larger one has several calls. What passes by itself comes again, later and
// later, without other messages' orders. No accepted order is lost for a bug. While the database is down a worker
// rests. Signs of life come before the server gives messages to others. At the end the call under way is finished, or
// canceled if it takes long, and the rest goes to other instances.
func TestConsuming(t *testing.T) {
	t.Parallel()
	down := func(err error) []func(int) []error { return []func(int) []error{first(outage(err))} }
	bug := func(verdict func(int) []error) *consuming {
		return &consuming{
			orders: []int{3}, calls: calls{verdicts: []func(int) []error{verdict}},
			want: "3 at 0s, 3 at 5s", heard: []string{"nak 5s at 0s, ack at 5s"}, log: "cannot be persisted",
		}
	}
	for name, test := range map[string]*consuming{
		"merged, and not split": {
			orders: []int{10, 4, 4, 9, 1, 1, 25}, options: ConsumeOptions{Workers: 1, MaxOrders: 10},
			calls: calls{takes: 200 * time.Millisecond},
			want:  "10 at 0s, 8 at 200ms, 10 at 400ms, 1 at 600ms, 10 at 800ms, 10 at 1s, 5 at 1.2s",
			heard: []string{
				"ack at 200ms", "ack at 400ms", "ack at 400ms", "ack at 600ms", "ack at 600ms",
				"ack at 800ms", "ack at 1.4s",
			},
		},
		"not now": {
			orders: []int{3, 3}, options: ConsumeOptions{Workers: 1, MaxOrders: 3},
			calls: calls{verdicts: slices.Concat(
				down(model.Unavailable("down", nil)), []func(int) []error{first(nil)},
				down(model.ErrUnknownOutcome), down(context.DeadlineExceeded))},
			want:  "3 at 0s, 3 at 100ms, 3 at 100ms, 3 at 300ms, 3 at 700ms",
			heard: []string{"nak 100ms at 0s, nak 200ms at 100ms, nak 400ms at 300ms, ack at 700ms", "ack at 100ms"},
		},
		"judged by its own orders": {
			orders: []int{MaxOrders, 2, 2, 2}, options: ConsumeOptions{Workers: 1},
			calls: calls{takes: 500 * time.Millisecond, verdicts: []func(int) []error{first(nil), func(int) []error {
				return []error{nil, nil, nil, outage(model.Unavailable("down", nil)), nil, nil}
			}}},
			want:  "500 at 0s, 6 at 500ms, 2 at 1.1s",
			heard: []string{"ack at 500ms", "ack at 1s", "nak 100ms at 1s, ack at 1.6s", "ack at 1s"},
		},
		"a refusal that is a bug": bug(func(int) []error {
			return []error{outage(model.Unavailable("and one that heals", nil)), errors.New("what is this"), nil}
		}),
		"a panic":              bug(func(int) []error { panic("what is this") }),
		"verdicts are missing": bug(func(int) []error { return nil }),
		"down": {
			orders: slices.Repeat([]int{1}, 100), options: ConsumeOptions{Workers: 1, MaxOrders: 1},
			lasts: 2 * time.Second,
			calls: calls{verdicts: slices.Repeat(down(model.Unavailable("down", nil)), 100)},
			want:  "1 at 0s, 1 at 100ms, 1 at 300ms, 1 at 700ms, 1 at 1.2s, 1 at 1.7s",
		},
		"slow": {
			orders: []int{2, 2, 2}, options: ConsumeOptions{Workers: 1, MaxOrders: 2},
			calls: calls{takes: 7500 * time.Millisecond},
			want:  "2 at 0s, 2 at 7.5s, 2 at 15s",
			heard: []string{signs(3) + "ack at 7.5s", signs(7) + "ack at 15s", signs(11) + "ack at 22.5s"},
		},
		"ended": {
			orders: []int{1, 1, 1}, options: ConsumeOptions{Workers: 1, MaxOrders: 1},
			lasts: time.Millisecond, calls: calls{takes: stopBudget - time.Second/2},
			want:  "1 at 0s",
			heard: []string{"sign at 2s, sign at 4s, ack at 5.5s", "nak at 1s", "nak at 1s"}, // as the fetch ends
		},
		"ended too late": {
			orders: []int{1}, lasts: time.Second, calls: calls{takes: time.Hour},
			want: "1 at 0s", heard: []string{"sign at 2s, sign at 4s, sign at 6s, nak 100ms at 7s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, c := newServer(t, test.orders...), &test.calls
				c.began = time.Now()
				stop := s.consume(t, c.persist, test.options)
				<-time.After(cmp.Or(test.lasts, time.Minute))
				stop()
				check.Equal(t, "calls", strings.Join(c.told, ", "), test.want)
				for i, heard := range test.heard {
					check.Equal(t, fmt.Sprintf("message %d hears", i+1), s.heard(uint64(i+1)), heard)
				}
				check.Equal(t, "an error in the log", s.log.Has("level=ERROR", test.log), test.log != "")
			})
		})
	}
}

type consuming struct {
	orders  []int
	options ConsumeOptions
	calls   calls
	lasts   time.Duration // 0: a minute
	want    string
	heard   []string
	log     string // an error in it
}

// signs are n signs of life, one every 2 s.
func signs(n int) (all string) {
	for i := range n {
		all += fmt.Sprintf("sign at %ds, ", 2*i+2)
	}
	return all
}

func TestACallThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), budget.Call)
		defer cancel()
		began, hang := time.Now(), make(chan int)
		_, err := leaving(ctx, func(context.Context) (int, error) { return <-hang, nil })
		check.Is(t, "it hangs", err, context.DeadlineExceeded)
		check.Equal(t, "it is left after", time.Since(began), budget.Call)
		close(hang)
	})
}

func TestTheSameErrorIsNotLoggedAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log check.Log
		var o nats.Options
		for _, option := range handlers(log.Logger(), func(error) {}) {
			check.Must(t, option(&o))
		}
		for range 300 { // 15 s
			o.ReconnectErrCB(nil, nats.ErrAuthorization)
			o.AsyncErrorCB(nil, nil, nats.ErrAuthorization)
			<-time.After(budget.Blink)
		}
		o.ReconnectErrCB(nil, nats.ErrNoServers)
		check.Equal(t, "lines", strings.Count(log.String(), "\n"), 3)
		check.Equal(t, "the other one", log.Has("level=WARN", "no servers"), true)
	})
}

type spell struct {
	verdict  error
	from, to time.Duration
}

func (s spell) at(now time.Duration) bool { return s.verdict != nil && s.from <= now && now < s.to }

// history is a sale in which any voucher may be in trouble at any time, and all may.
type history struct {
	*server

	vouchers []spell
	outage   spell

	mu   sync.Mutex
	came map[string]uint64        // orders, and the messages in which they came
	done map[string]uint64        // and as of which they were done
	when map[uint64]time.Duration // messages that all vouchers share
}

func newHistory(t *testing.T, chance *rand.Rand) *history {
	t.Helper()
	h := &history{
		server: newServer(t), came: map[string]uint64{}, done: map[string]uint64{},
		when: map[uint64]time.Duration{},
	}
	within := func(n time.Duration) time.Duration { return time.Duration(chance.Int64N(int64(n))) }
	for range 1 + chance.IntN(20) {
		verdict := []error{
			nil, model.Unavailable("its row is locked", nil), errors.New("a bug"),
			model.Unavailable("a rebuild", model.ErrCopyReplaced),
			model.Unavailable("it rests", model.ErrNotTried),
		}[chance.IntN(5)]
		from := within(30 * time.Second)
		h.vouchers = append(h.vouchers, spell{verdict, from, from + within(time.Minute)})
	}
	if chance.IntN(3) == 0 {
		from := within(30 * time.Second)
		h.outage = spell{outage(model.Unavailable("away", nil)), from, from + within(10*time.Second)}
	}
	return h
}

func (h *history) now() time.Duration { return time.Since(h.began) }

func (h *history) sell(t *testing.T, chance *rand.Rand) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	orders := someOrders(1 + chance.IntN(20))
	for i := range orders {
		orders[i].ID = fmt.Sprintf("o%d.%d", len(h.came), chance.IntN(len(h.vouchers)))
		h.came[orders[i].ID] = h.stored + 1
	}
	h.when[h.stored+1] = h.now()
	h.store(roads.subject, check.Value(encode(orders))(t))
}

func (h *history) persist(_ context.Context, orders []model.Reservation) []error {
	<-time.After(5 * time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	verdicts := make([]error, len(orders))
	for i, r := range orders {
		var voucher int
		_, _ = fmt.Sscan(r.VoucherID, &voucher)
		switch mine := h.vouchers[voucher]; {
		case mine.at(h.now()):
			verdicts[i] = mine.verdict
		case h.outage.at(h.now()):
			verdicts[i] = h.outage.verdict
		default:
			h.done[r.ID] = r.Sequence
		}
	}
	return verdicts
}

// holdUp bounds a message that all share while nothing ails all: a rebuild's strayTries deliveries, beside a bug.
const holdUp = budget.Answer + 3*time.Second

// Each message that all share is acknowledged soon, no order is lost, and only a rebuild's come with another message.
func TestNobodyWaitsForTheTroubleOfAnother(t *testing.T) {
	t.Parallel()
	for range check.Count(t, "ROUNDS", 20, 300) {
		chance := check.Seeded(t)
		synctest.Test(t, func(t *testing.T) {
			h := newHistory(t, chance)
			stop := h.consume(t, h.persist, ConsumeOptions{MaxOrders: 1 + chance.IntN(40)})
			refused := time.Duration(chance.Int64N(int64(30 * time.Second)))
			for h.now() < 30*time.Second {
				h.sell(t, chance)
				<-time.After(time.Duration(chance.Int64N(int64(time.Second))))
				h.refuse(h.now() > refused && h.now() < refused+2*time.Second && chance.IntN(2) == 0)
			}
			h.refuse(false)
			<-time.After(2 * time.Minute)
			stop()
			check.Equal(t, "orders that are done", len(h.done), len(h.came))
			most := 2 * len(h.vouchers) * len(h.when) // twice where not all could be stored at once
			check.That(t, h.isolated <= most, "%d messages of orders isolated, want at most %d: once is enough",
				h.isolated, most)
			again := int(h.stored) - len(h.when) - h.isolated
			check.That(t, again <= 60*len(h.when),
				"%d messages of orders that wait for a rebuild: none is published again more than once a second", again)
			for id, sequence := range h.done {
				_, voucher, _ := strings.Cut(id, ".")
				var of int
				_, _ = fmt.Sscan(voucher, &of)
				moved := errors.Is(h.vouchers[of].verdict, model.ErrCopyReplaced)
				check.That(t, sequence == h.came[id] || moved && sequence > h.came[id],
					"%s came in message %d, and counts as of %d", id, h.came[id], sequence)
			}
			for sequence, from := range h.when {
				if h.outage.verdict != nil && from < h.outage.to {
					from = max(from, h.outage.to)
				}
				if from > refused-holdUp && from < refused+2*time.Second { // nothing could be moved
					from = max(from, refused+2*time.Second)
				}
				_, at, _ := strings.Cut(h.heard(sequence), "ack at ")
				acked := check.Value(time.ParseDuration(at))(t)
				check.That(t, acked < from+holdUp, "message %d of %v was kept until %v: %s", sequence, h.when[sequence],
					acked, h.heard(sequence))
			}
		})
	}
}

// While messages keep coming, those of 100 ms share a call. A full one, and the first after a quiet moment, never wait.
func TestCallsGatherWhileMessagesKeepComing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takes        time.Duration
		messages, of int
		each         time.Duration
		want         string
	}{
		"quick": {5 * time.Millisecond, 16, 1, 3 * time.Millisecond, "1 at 0s, 15 at 100ms"},
		"slow":  {200 * time.Millisecond, 16, 1, 3 * time.Millisecond, "1 at 0s, 15 at 100ms"},
		"full": {
			5 * time.Millisecond, 16, 160, 3 * time.Millisecond,
			"160 at 0s, 480 at 12ms, 480 at 21ms, 480 at 30ms, 480 at 39ms, 480 at 139ms",
		},
		"quiet": {5 * time.Millisecond, 3, 1, gatherTime, "1 at 0s, 1 at 100ms, 1 at 200ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, c := newServer(t), &calls{began: time.Now(), takes: test.takes}
				stop := s.consume(t, c.persist, ConsumeOptions{MaxOrders: 500})
				for range test.messages {
					s.store(roads.subject, check.Value(encode(someOrders(test.of)))(t))
					<-time.After(test.each)
				}
				<-time.After(time.Second)
				stop()
				check.Equal(t, "calls", strings.Join(c.told, ", "), test.want)
			})
		})
	}
}

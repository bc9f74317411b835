package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/queue"
)

// The ack is lost with its connection: the publish is repeated under its id,
// succeeds, and there is one message.
func TestLostAckIsOneMessage(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	w := newWire(t, server.Addr())
	q, log := atServer(t, w.url())
	for i := range 5 {
		w.cutAt(`"seq":`) // of the ack
		must(t, q.Publish(t.Context(), some(fmt.Sprintf("m%d", i), 3)))
		if w.cuts() != i+1 {
			t.Fatalf("%d acks were lost, want %d", w.cuts(), i+1)
		}
	}
	waiting(t, q, 5)
	if !log.Has("a publish is repeated") || !log.Has("disconnected") || !log.Has("connected again") {
		t.Errorf("log:\n%s", log)
	}
}

// A server that does not answer: the caller hears "unknown" at its deadline,
// and not later.
func TestSilentServerIsUnknownInTime(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	q, _ := atServer(t, server.URL())
	for _, silence := range []struct {
		name string
		do   func()
	}{{"paused", server.Pause}, {"killed", server.Kill}} {
		name := silence.name
		silence.do()
		// A pause reaches one thread after the other.
		check.Eventually(t, "it is silent", func() bool { return q.Ping(t.Context()) != nil })
		inTime(t, 2500*time.Millisecond, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			err := q.Publish(ctx, some("a", 1))
			if ctx.Err() == nil || !errors.Is(err, model.ErrUnknownOutcome) || model.CodeOf(err) != model.CodeUnavailable {
				t.Errorf("%s: Publish: %v, the caller's context: %v", name, err, ctx.Err())
			}
		})
		inTime(t, 8*time.Second, func() {
			for what, ask := range map[string]func() error{
				"Ping":    func() error { return q.Ping(t.Context()) },
				"Backlog": func() error { _, err := q.Backlog(t.Context()); return err },
				"Bury":    func() error { return q.Bury(t.Context(), model.DeadLetter{Reason: "x", Raw: []byte("x")}) },
			} {
				if err := ask(); model.CodeOf(err) != model.CodeUnavailable {
					t.Errorf("%s: %s: %v, want UNAVAILABLE", name, what, err)
				}
			}
		})
	}
}

// inTime bounds a call that gives up a second or more before the limit.
func inTime(t *testing.T, limit time.Duration, call func()) {
	t.Helper()
	testserver.Undisturbed(t, 500*time.Millisecond, func() error {
		begun := time.Now()
		call()
		if took := time.Since(begun); took > limit {
			return fmt.Errorf("it took %s, want at most %s", took, limit)
		}
		return nil
	})
}

// What was asked for while the connection was down is not sent after its caller
// has been told that the outcome is unknown.
func TestNothingIsSentLater(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	q, _ := atServer(t, server.URL())
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := q.Publish(ctx, some("a", 1)); !errors.Is(err, model.ErrUnknownOutcome) {
		t.Errorf("Publish: %v", err)
	}
	server.Start()
	check.Eventually(t, "it is connected again", func() bool { return q.Ping(t.Context()) == nil })
	must(t, q.Publish(t.Context(), some("b", 1)))
	waiting(t, q, 1)
}

// Killed again and again while orders are published, and once while they are
// consumed: whatever was acknowledged is handed out, by the same Queue, with
// nothing to be done.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	q, log := atServer(t, server.URL())
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	accepted := map[string]bool{}
	var publishers sync.WaitGroup
	for p := range 4 {
		publishers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				all := some(fmt.Sprintf("p%d-%d", p, i), 3)
				err := q.Publish(t.Context(), all)
				mu.Lock()
				for _, r := range all {
					accepted[r.ID] = err == nil
				}
				mu.Unlock()
			}
		})
	}
	// Nothing is consumed meanwhile, so that much is queued at each kill.
	for range 4 {
		mu.Lock()
		before := len(accepted)
		mu.Unlock()
		check.Eventually(t, "orders are accepted", func() bool { mu.Lock(); defer mu.Unlock(); return len(accepted) > before+100 })
		server.Kill()
		server.Start()
	}
	cancel()
	publishers.Wait()
	backlog := check.Value(q.Backlog(t.Context()))(t)
	var l ledger
	consume(t, q, l.persist, queue.ConsumeOptions{})
	check.Eventually(t, "some are consumed", func() bool { return len(l.seen()) > 0 })
	server.Kill()
	server.Start()
	drained(t, q)
	seen, lost := l.seen(), 0
	for id, ok := range accepted {
		if ok && seen[id] == 0 {
			lost++
		}
	}
	if lost > 0 || len(accepted) < 400 || backlog.Messages < 100 {
		t.Errorf("of %d orders in %d messages %d were acknowledged and lost\n%s", len(accepted), backlog.Messages, lost, log)
	}
}

// A full stream refuses at once and discards nothing; with room again it
// accepts again.
func TestFullStreamRefuses(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *queue.Queue{
		"the server's store": func(t *testing.T) *queue.Queue {
			q, _ := atServer(t, testserver.NATS(t, "max_file_store: 1MB").URL())
			return q
		},
		"the stream's bound": func(t *testing.T) *queue.Queue {
			return newFixture(t, func(o *queue.Options) { o.MaxBytes = 1 << 20 }).Queue
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := open(t)
			var accepted, refused atomic.Int64
			for i := 0; refused.Load() < 3; i++ {
				ran := testserver.Stopwatch()
				err := q.Publish(t.Context(), some(fmt.Sprintf("m%d", i), 100))
				took := ran()
				if err == nil {
					if accepted.Add(1) > 200 {
						t.Fatal("2 MB were accepted where 1 MiB fits")
					}
					continue
				}
				refused.Add(1)
				if !errors.Is(err, model.ErrUnknownOutcome) || took > tryBudget {
					t.Errorf("refused after %s with %v", took, err)
				}
			}
			backlog := check.Value(q.Backlog(t.Context()))(t)
			if backlog.Messages != accepted.Load() || accepted.Load() < 20 {
				t.Errorf("%d messages were accepted, %d are there", accepted.Load(), backlog.Messages)
			}
			var l ledger
			stop := consume(t, q, l.persist, queue.ConsumeOptions{})
			drained(t, q)
			stop()
			l.handedOut(t, int(100*accepted.Load()))
			must(t, q.Publish(t.Context(), some("room", 100)))
		})
	}
}

// tryBudget is after how long an ack counts as lost: a refusal is quicker.
const tryBudget = time.Second

// The consumer, or the whole stream, is deleted under a running worker.
func TestDeletedThingsAreMadeAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	var l ledger
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	must(t, f.Publish(t.Context(), some("a", 5)))
	before := drained(t, f.Queue)

	must(t, f.js.DeleteConsumer(t.Context(), orders, "worker"))
	must(t, f.Publish(t.Context(), some("b", 5)))
	check.Eventually(t, "the consumer is back", func() bool { return len(l.seen()) == 10 })

	must(t, f.js.DeleteStream(t.Context(), orders))
	must(t, f.Publish(t.Context(), some("c", 5))) // repeated until the worker has put it back
	after := drained(t, f.Queue)
	l.handedOut(t, 15)
	// Else a rebuild's barrier from before would be met by newer messages.
	if after.LastSequence <= before.LastSequence+1 {
		t.Errorf("the new stream's message has the sequence %d, the old one's had %d", after.LastSequence, before.LastSequence)
	}
	check.Eventually(t, "the log says that all is well again", func() bool { return f.log.Has("fetched again") })
	if !f.log.Has("cannot be fetched") || !f.log.Has("level=ERROR", "the stream of orders was gone") {
		t.Errorf("log:\n%s", f.log)
	}
}

// The acks are lost with their connection: what they were for comes again, and
// the ack floor does not claim otherwise.
func TestLostAcksAreDeliveredAgain(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	w := newWire(t, server.Addr())
	q, _ := atServer(t, w.url()) // with the AckWait of production: a shorter one may pass twice on a machine that stands still
	must(t, q.Publish(t.Context(), some("a", 1)))
	w.cutAt("+ACK")
	var l ledger
	consume(t, q, l.persist, queue.ConsumeOptions{})
	check.Eventually(t, "the ack is lost", func() bool { return w.cuts() == 1 })
	if stream, err := plain(t, nats.Name("beside"), server.URL()).Stream(t.Context(), orders); err != nil || stream.CachedInfo().State.Msgs != 1 {
		t.Fatalf("the message is gone without its ack: %v", err)
	}
	drained(t, q)
	check.Equal(t, "times that it was handed out", l.seen()[some("a", 1)[0].ID], 2)
}

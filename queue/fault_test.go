//part:queue

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
)

// behindAWire is a deployment on the shared server, and a queue that is connected through a wire.
func behindAWire(t *testing.T, change func(*queue.Options)) (f *fixture, w *wire) {
	t.Helper()
	f = bare(t)
	w = newWire(t, strings.TrimPrefix(f.options.URL, "nats://"))
	f.options.URL = w.url()
	f.Queue = f.open(t, change)
	return f, w
}

// The ack is lost with its connection: the publish is repeated under its id, succeeds, and there is one message.
func TestLostAckIsOneMessage(t *testing.T) {
	t.Parallel()
	f, w := behindAWire(t, nil)
	rounds := check.Count(t, "ROUNDS", 1, 10)
	for i := range rounds {
		w.cutAt(`"seq":`) // of the ack
		check.Must(t, f.Publish(t.Context(), some(fmt.Sprintf("m%d", i), 3)))
		if w.cuts() != i+1 {
			t.Fatalf("%d acks were lost, want %d", w.cuts(), i+1)
		}
	}
	waiting(t, f.Queue, int64(rounds))
	check.Eventually(t, "the log tells of both", func() bool {
		return f.log.Has("a publish is repeated") && f.log.Has("disconnected") && f.log.Has("connected again")
	})
}

// What was asked for while the connection was down is not sent after its caller
// has been told that the outcome is unknown.
func TestNothingIsSentLater(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	q := onServer(t, queue.Options{URL: server.URL()}).open(t, nil)
	server.Kill()
	if err := q.Publish(check.Expiring(t), some("a", 1)); !errors.Is(err, model.ErrUnknownOutcome) {
		t.Errorf("Publish: %v", err)
	}
	server.Start()
	check.Must(t, q.Publish(t.Context(), some("b", 1))) // as soon as it is connected again
	waiting(t, q, 1)
}

// Killed again and again while orders are published, and once while they are consumed: whatever was acknowledged is
// handed out, by the same Queue, with nothing to be done.
func TestKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	f := onServer(t, queue.Options{URL: server.URL()})
	q := f.open(t, func(o *queue.Options) { o.AckWait = time.Second })
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
	for range check.Count(t, "ROUNDS", 1, 10) {
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
	if lost > 0 || len(accepted) < 100 || backlog.Messages < 20 {
		t.Errorf("of %d orders in %d messages %d were acknowledged and lost\n%s", len(accepted), backlog.Messages, lost, f.log)
	}
}

// A full stream refuses at once and discards nothing; with room again it accepts again.
func TestFullStreamRefuses(t *testing.T) {
	t.Parallel()
	full(t, newFixture(t, func(o *queue.Options) { o.MaxBytes = 1 << 20 }).Queue)
}

// full publishes until a queue of 1 MB is full.
func full(t *testing.T, q *queue.Queue) {
	t.Helper()
	accepted := 0
	for refused := 0; refused < 3; {
		err := q.Publish(t.Context(), some(fmt.Sprintf("m%d", accepted), 100))
		if err == nil {
			if accepted++; accepted > 200 {
				t.Fatal("2 MB were accepted where 1 MiB fits")
			}
			continue
		}
		// The refusal is the server's own word, and nothing is tried until the time is up.
		if refused++; !errors.Is(err, model.ErrUnknownOutcome) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("refused with %v", err)
		}
	}
	check.That(t, model.CodeOf(q.Ping(t.Context())) == model.CodeUnavailable, "it is not ready after a refusal: %v", q.Ping(t.Context()))
	if backlog := check.Value(q.Backlog(t.Context()))(t); backlog.Messages != int64(accepted) || accepted < 20 {
		t.Errorf("%d messages were accepted, %d are there", accepted, backlog.Messages)
	}
	handOut(t, q).handedOut(t, 100*accepted)
	check.Must(t, q.Publish(t.Context(), some("room", 100)))
	check.Must(t, q.Ping(t.Context()))
}

// The consumer, or the whole stream, is deleted under a running worker.
func TestDeletedThingsAreMadeAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	var l ledger
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	check.Must(t, f.Publish(t.Context(), some("a", 5)))
	before := drained(t, f.Queue)

	check.Must(t, f.js.DeleteConsumer(t.Context(), f.orders, "worker"))
	check.Must(t, f.Publish(t.Context(), some("b", 5)))
	check.Eventually(t, "the consumer is back", func() bool { return len(l.seen()) == 10 })

	check.Must(t, f.js.DeleteStream(t.Context(), f.orders))
	check.Must(t, f.Publish(t.Context(), some("c", 5))) // repeated until the worker has put it back
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

// The acks are lost with their connection: what they were for comes again, and the ack floor does not claim otherwise.
func TestLostAcksAreDeliveredAgain(t *testing.T) {
	t.Parallel()
	f, w := behindAWire(t, func(o *queue.Options) { o.AckWait = time.Second })
	check.Must(t, f.Publish(t.Context(), some("a", 1)))
	w.cutAt("+ACK")
	var l ledger
	consume(t, f.Queue, l.persist, queue.ConsumeOptions{})
	check.Eventually(t, "the ack is lost", func() bool { return w.cuts() == 1 })
	check.Eventually(t, "a new connection", func() bool { return f.log.Has("connected again") }) // a question on the old one has no answer
	drained(t, f.Queue)
	if times := l.seen()[some("a", 1)[0].ID]; times < 2 {
		t.Errorf("it was handed out %d times", times)
	}
}

//go:build faults

//part:queue

package queue_test

import (
	"errors"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/queue"
)

// A server that does not answer: the caller hears "unknown" when its time is up, and every question gives up by itself.
func TestSilentServerIsUnknownInTime(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	q := at(t, server.URL())
	for _, c := range []struct {
		name         string
		silence, end func()
	}{{"paused", server.Pause, server.Resume}, {"killed", server.Kill, server.Start}} {
		c.silence()
		// A pause reaches one thread after the other.
		check.Eventually(t, "it is silent", func() bool { return q.Ping(t.Context()) != nil })
		ctx := check.Expiring(t)
		err := q.Publish(ctx, some("a", 1))
		if ctx.Err() == nil || !errors.Is(err, model.ErrUnknownOutcome) || model.CodeOf(err) != model.CodeUnavailable {
			t.Errorf("%s: Publish: %v, the caller's context: %v", c.name, err, ctx.Err())
		}
		for what, ask := range map[string]func() error{
			"Ping":    func() error { return q.Ping(check.Context(t)) },
			"Publish": func() error { return q.Publish(check.Context(t), some("b", 1)) },
			"Backlog": func() error { return check.ErrorOf(q.Backlog(check.Context(t))) },
			"Bury":    func() error { return q.Bury(check.Context(t), model.DeadLetter{Reason: "x", Raw: []byte("x")}) },
		} {
			if err := ask(); model.CodeOf(err) != model.CodeUnavailable {
				t.Errorf("%s: %s: %v, want UNAVAILABLE", c.name, what, err)
			}
		}
		c.end()
		check.Eventually(t, "it answers", func() bool { return q.Ping(t.Context()) == nil })
	}
}

// A store that is full refuses as a stream that has a bound of its own.
func TestFullStoreRefuses(t *testing.T) {
	t.Parallel()
	full(t, onServer(t, queue.Options{URL: testserver.NATS(t, "max_file_store: 1MB").URL()}).open(t, nil))
}

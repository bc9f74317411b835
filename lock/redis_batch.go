package lock

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name Redis gives a script, no protection
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// defaultFlights: see Pipelines.
	defaultFlights = 2
	// maxFlightCalls keeps a pipeline's replies within one read buffer and
	// its last caller from waiting long for the first.
	maxFlightCalls = 128
	// maxQueuedCalls bounds the callers that wait for a place in a pipeline;
	// more could not be served within any sensible deadline.
	maxQueuedCalls = 16_384
	// overdueAfter is when a pipeline without an answer no longer counts
	// against the number under way, so that one dead connection does not
	// hold up everybody: many times a slow answer.
	overdueAfter = 250 * time.Millisecond
	// maxOverdue bounds the connections that may be stuck like this.
	maxOverdue = 8
	// flightTimeout bounds a pipeline, if the client minds contexts.
	flightTimeout = 5 * time.Second
	// forgetAfter is how long latches that are done with wait for a pipeline
	// to delete them along with, and maxForgotten how many go in one command.
	forgetAfter  = 100 * time.Millisecond
	maxForgotten = 256
)

// script is a Lua script and its name in Redis' cache.
type script struct{ src, sha string }

func newScript(src string) *script {
	sum := sha1.Sum([]byte(src)) //nolint:gosec // as above
	return &script{src, hex.EncodeToString(sum[:])}
}

// call makes a call of the script; the first keys of args are its KEYS.
func (s *script) call(keys int, args ...string) *call {
	c := &call{script: s, args: make([]any, 0, len(args)+3)}
	c.args = append(c.args, "evalsha", s.sha, strconv.Itoa(keys))
	for _, a := range args {
		c.args = append(c.args, a)
	}
	return c
}

// call is one script call on its way.
type call struct {
	script *script
	args   []any
	done   chan struct{}
	sent   bool // guarded by batcher.mu
	val    any
	err    error
}

// batcher gathers the calls of concurrent callers into pipelines. A caller
// leaves when its context ends, whatever the connection does; it is then told
// whether its call was sent.
type batcher struct {
	client  redis.UniversalClient
	flights int
	cluster bool

	mu       sync.Mutex
	pending  []*call
	forgot   []string
	flying   int
	overdue  int
	timer    *time.Timer // for what was forgotten
	closed   bool
	inFlight sync.WaitGroup
}

func newBatcher(client redis.UniversalClient, flights int, cluster bool) *batcher {
	return &batcher{client: client, flights: flights, cluster: cluster}
}

// do makes one call.
func (b *batcher) do(ctx context.Context, c *call) (any, error) {
	c.done = make(chan struct{})
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", ErrNotSent, ErrClosed)
	case len(b.pending) >= maxQueuedCalls:
		b.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", ErrNotSent, ErrOverloaded)
	}
	b.pending = append(b.pending, c)
	b.takeOff()
	b.mu.Unlock()

	select {
	case <-c.done:
		return c.val, c.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.done: // answered at the last moment
		return c.val, c.err
	default:
	}
	why := ErrUnknown
	if !c.sent {
		why = ErrNotSent
		if i := slices.Index(b.pending, c); i >= 0 {
			b.pending = slices.Delete(b.pending, i, i+1)
		}
	}
	return nil, fmt.Errorf("%w: %w", why, context.Cause(ctx))
}

// direct makes calls in a pipeline of their own, past the queue: renewals must
// not wait behind acquisitions. The calls' fields are only valid if it succeeds.
func (b *batcher) direct(ctx context.Context, calls []*call) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return fmt.Errorf("%w: %w", ErrNotSent, ErrClosed)
	}
	done := make(chan struct{})
	b.inFlight.Go(func() {
		defer close(done)
		b.exec(ctx, calls, nil)
	})
	b.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

// takeOff starts a pipeline if there is work and a free place. Under b.mu.
func (b *batcher) takeOff() {
	if b.flying < b.flights && len(b.pending) > 0 {
		b.flying++
		b.inFlight.Go(b.fly)
	}
}

// fly carries out what is pending until nothing is.
func (b *batcher) fly() {
	for {
		b.mu.Lock()
		n := min(len(b.pending), maxFlightCalls)
		if n == 0 {
			b.flying--
			b.mu.Unlock()
			return
		}
		calls := slices.Clone(b.pending[:n])
		b.pending = slices.Delete(b.pending, 0, n)
		for _, c := range calls {
			c.sent = true
		}
		forgot := b.forgot
		b.forgot = nil
		b.mu.Unlock()

		if !b.timed(calls, forgot) {
			return // another one has taken this place
		}
	}
}

// timed carries out one pipeline. When that takes too long it gives up its
// place and answers false.
func (b *batcher) timed(calls []*call, forgot []string) bool {
	late := false // guarded by b.mu
	over := false
	alarm := time.AfterFunc(overdueAfter, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if over || b.overdue >= maxOverdue {
			return
		}
		late = true
		b.overdue++
		b.flying--
		b.takeOff()
	})
	ctx, cancel := context.WithTimeout(context.Background(), flightTimeout)
	b.exec(ctx, calls, forgot)
	cancel()
	alarm.Stop()
	for _, c := range calls {
		close(c.done)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	over = true
	if late {
		b.overdue--
	}
	return !late
}

// exec sends calls in one pipeline and reads the answers into them. Scripts
// that Redis does not know (any more) are sent again in full.
func (b *batcher) exec(ctx context.Context, calls []*call, forgot []string) {
	pipe := b.client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = redis.NewCmd(ctx, c.args...)
		_ = pipe.Process(ctx, cmds[i])
	}
	if len(forgot) > 0 {
		pipe.Unlink(ctx, forgot...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error

	var again []int
	for i, c := range calls {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			again = append(again, i)
			c.args[0], c.args[1] = "eval", c.script.src
			cmds[i] = redis.NewCmd(ctx, c.args...)
			_ = pipe.Process(ctx, cmds[i])
		}
	}
	if len(again) > 0 {
		_, _ = pipe.Exec(ctx)
	}
	for i, c := range calls {
		c.val, c.err = cmds[i].Val(), classify(cmds[i].Err())
	}
}

// classify sorts errors into: nothing happened (ErrRefused), it may have
// (ErrUnknown), and other answers of Redis, after which it may have too if
// go-redis had sent the command before.
func classify(err error) error {
	var answer redis.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case redis.HasErrorPrefix(err, "WRONGTYPE"), redis.HasErrorPrefix(err, "NOPERM"), redis.HasErrorPrefix(err, "NOAUTH"):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// forget deletes a latch some time, along with other calls.
func (b *batcher) forget(latch string) {
	if b.cluster {
		return // keys of different slots cannot go together; they expire
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.forgot) >= maxForgotten {
		return
	}
	b.forgot = append(b.forgot, latch)
	switch {
	case len(b.forgot) > 1:
	case b.timer == nil:
		b.timer = time.AfterFunc(forgetAfter, b.sweep)
	default:
		b.timer.Reset(forgetAfter)
	}
}

// sweep deletes the latches no pipeline has come by for.
func (b *batcher) sweep() {
	b.mu.Lock()
	forgot := b.forgot
	b.forgot = nil
	if len(forgot) == 0 {
		b.mu.Unlock()
		return
	}
	b.inFlight.Add(1)
	b.mu.Unlock()
	defer b.inFlight.Done()
	ctx, cancel := context.WithTimeout(context.Background(), flightTimeout)
	defer cancel()
	_ = b.client.Unlink(ctx, forgot...).Err() // they expire anyway
}

// close refuses further calls and waits for those under way, as long as they
// are not stuck.
func (b *batcher) close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	if !first {
		return
	}
	b.sweep()
	landed := make(chan struct{})
	go func() {
		b.inFlight.Wait()
		close(landed)
	}()
	t := time.NewTimer(flightTimeout)
	defer t.Stop()
	select {
	case <-landed:
	case <-t.C:
	}
}

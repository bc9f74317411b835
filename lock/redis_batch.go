package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// defaultPipelines keeps both ends busy: one pipeline is being executed while the next one fills.
	defaultPipelines = 2
	// maxPipelineCalls keeps a pipeline's replies in one read buffer, and its last caller from waiting long.
	maxPipelineCalls = 128
	// maxQueuedCalls bounds the callers waiting for a pipeline; more could not be served within a sensible deadline.
	maxQueuedCalls = 16_384
	// overdueAfter is when an unanswered pipeline no longer counts (250 ms): a dead connection holds up nobody.
	overdueAfter = defaultProbe / 2
	// maxOverdue bounds the connections that may be stuck like this.
	maxOverdue = 8
	// pipelineSweep is how exactly calls and pipelines are timed (100 ms).
	pipelineSweep = 2 * defaultPoll
	// soloTimeout is how long a caller may be stuck in a call of its own; it makes one only while answers are swift.
	soloTimeout = moment
	// forgetAtOnce finished latches are worth a command in the next pipeline; maxForgotten bounds those that wait.
	forgetAtOnce = 64
	maxForgotten = 1024
)

// batcher gathers the calls of concurrent callers into pipelines. A caller leaves when its context ends, and at the
// latest after the call timeout, whatever the connection does; its error then says whether the call was sent.
type batcher struct {
	client    redis.UniversalClient
	pipelines int
	timeout   time.Duration
	spread    bool // the keys of two locks may be on different servers

	replicas *replicas // that are to confirm what is written; nil: none
	solo     bool      // the client obeys the deadlines of contexts

	mu      sync.Mutex
	swift   bool // the last answer was, so the next one may well be
	pending []*call
	running map[*pipeline]struct{}
	active  int // of running, those that count against pipelines
	sweeper *time.Timer
	watched bool // sweeper is set
	forgot  []string
	closed  bool
	work    sync.WaitGroup
}

// pipeline is one goroutine that sends pipelines, one after the other.
type pipeline struct {
	began   time.Time
	calls   []*call
	overdue bool // does not count any more
}

func newBatcher(client redis.UniversalClient) *batcher {
	b := &batcher{
		client: client, pipelines: defaultPipelines, timeout: defaultCallTimeout,
		running: make(map[*pipeline]struct{}),
	}
	switch c := client.(type) {
	case *redis.Client:
		b.solo = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		b.spread = true
	}
	b.sweeper = time.AfterFunc(never, b.sweep)
	b.sweeper.Stop()
	return b
}

// do makes the calls of one caller, who waits for all of them.
func (b *batcher) do(ctx context.Context, calls ...*call) {
	waits := &caller{calls: len(calls), done: make(chan struct{})}
	now := time.Now()
	b.mu.Lock()
	alone := b.solo && b.swift && b.active == 0 && len(calls) <= maxPipelineCalls
	for _, c := range calls {
		c.caller, c.queued = waits, now
		switch {
		case b.closed:
			b.abort(c, ErrClosed)
		case len(b.pending)+len(calls) > maxQueuedCalls:
			b.abort(c, ErrOverloaded)
		}
		c.sent = alone
	}
	if waits.calls == 0 {
		b.mu.Unlock()
		return
	}
	if alone {
		b.active++
		forgot := b.forgotten()
		b.mu.Unlock()
		if b.alone(ctx, calls, forgot) {
			return
		}
		b.mu.Lock()
	}
	b.pending = append(b.pending, calls...)
	b.start() //nolint:contextcheck // a pipeline serves many callers and outlives each
	b.mu.Unlock()

	select {
	case <-waits.done:
	case <-ctx.Done():
		b.mu.Lock()
		for _, c := range calls {
			b.abort(c, context.Cause(ctx))
		}
		b.pending = slices.DeleteFunc(b.pending, func(c *call) bool { return c.finished })
		b.mu.Unlock()
	}
}

// alone makes calls in the caller's own goroutine when no others are under way: this saves a third of the time. A
// caller cannot leave it, so it is given up soon, for the queue (false); being then executed twice does no harm.
func (b *batcher) alone(ctx context.Context, calls []*call, forgot []string) bool {
	soon, cancel := context.WithTimeout(ctx, soloTimeout)
	defer cancel()
	answers := b.exec(soon, calls, forgot)
	// The connection's deadline may fire a moment before that of the context.
	gaveUp := slices.ContainsFunc(answers, func(a answer) bool {
		return (errors.Is(a.err, ErrUnknown) || errors.Is(a.err, ErrNotSent)) &&
			(soon.Err() != nil || errors.Is(a.err, os.ErrDeadlineExceeded))
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active--
	b.start() //nolint:contextcheck // a pipeline serves many callers and outlives each
	took := time.Since(calls[0].queued)
	b.swift = took < swiftly
	for i, c := range calls {
		if c.alone = gaveUp; !gaveUp {
			b.finish(c, answers[i], took)
		}
	}
	return !gaveUp
}

// abort ends a call that has no answer. Under b.mu.
func (b *batcher) abort(c *call, why error) {
	outcome := ErrUnknown
	if !c.sent {
		outcome = ErrNotSent
	}
	b.finish(c, answer{err: fmt.Errorf("%w: %w", outcome, why)}, 0)
}

// finish gives a call its answer; the first one counts. Under b.mu.
func (b *batcher) finish(c *call, a answer, took time.Duration) {
	if !c.finished {
		c.finished, c.answer, c.took = true, a, took
		if c.caller.calls--; c.caller.calls == 0 {
			close(c.caller.done)
		}
	}
}

// aside calls do in a goroutine that its caller leaves at ctx's end or the call timeout. After nil it is done.
func (b *batcher) aside(ctx context.Context, do func(context.Context)) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return fmt.Errorf("%w: %w", ErrNotSent, ErrClosed)
	}
	done := make(chan struct{})
	b.work.Go(func() {
		defer close(done)
		do(ctx)
	})
	b.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

// start starts a pipeline if there is work and a free place. Under b.mu.
func (b *batcher) start() {
	if b.active >= b.pipelines || len(b.pending) == 0 {
		return
	}
	p := &pipeline{}
	b.running[p] = struct{}{}
	b.active++
	b.work.Go(func() { b.carry(p) })
	b.guard()
}

func (b *batcher) carry(p *pipeline) {
	var answers []answer
	for {
		b.mu.Lock()
		if len(p.calls) > 0 {
			b.swift = time.Since(p.began) < swiftly
		}
		for i, c := range p.calls {
			b.finish(c, answers[i], time.Since(p.began))
		}
		n := min(len(b.pending), maxPipelineCalls)
		if n == 0 || p.overdue {
			if !p.overdue {
				b.active--
			}
			delete(b.running, p)
			b.mu.Unlock()
			return
		}
		p.began = time.Now()
		p.calls = append(p.calls[:0], b.pending[:n]...)
		b.pending = slices.Delete(b.pending, 0, n)
		for _, c := range p.calls {
			c.sent = true
		}
		forgot := b.forgotten()
		b.mu.Unlock()
		answers = b.exec(context.Background(), p.calls, forgot)
	}
}

// guard runs sweep while it has work. One timer serves all calls: one for each would cost more than a call. Under b.mu.
func (b *batcher) guard() {
	if !b.watched && !b.closed {
		b.watched = true
		b.sweeper.Reset(pipelineSweep)
	}
}

// sweep ends calls that waited too long, replaces stuck pipelines, and deletes latches that are done with.
func (b *batcher) sweep() {
	b.mu.Lock()
	b.watched = false
	now := time.Now()
	tooOld := func(c *call) bool { return now.Sub(c.queued) >= b.timeout }
	b.pending = slices.DeleteFunc(b.pending, func(c *call) bool {
		if tooOld(c) {
			b.abort(c, context.DeadlineExceeded)
			return true
		}
		return false
	})
	for p := range b.running {
		if p.began.IsZero() || now.Sub(p.began) < overdueAfter {
			continue
		}
		for _, c := range p.calls {
			if tooOld(c) {
				b.abort(c, context.DeadlineExceeded)
			}
		}
		if !p.overdue && len(b.running) < b.pipelines+maxOverdue {
			p.overdue = true
			b.active--
			b.start()
		}
	}
	forgot := b.forgot
	b.forgot = nil
	if len(b.running) > 0 || len(b.pending) > 0 {
		b.guard()
	}
	if len(forgot) > 0 {
		b.work.Go(func() { b.unlink(forgot) })
	}
	b.mu.Unlock()
}

func (b *batcher) forget(latch string) {
	if b.spread {
		return // keys of different slots cannot go together; they expire
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && len(b.forgot) < maxForgotten {
		b.forgot = append(b.forgot, latch)
		b.guard()
	}
}

// forgotten are the latches to be deleted by the next pipeline, once there are enough. Under b.mu.
func (b *batcher) forgotten() (latches []string) {
	if len(b.forgot) >= forgetAtOnce {
		latches, b.forgot = b.forgot, nil
	}
	return latches
}

func (b *batcher) unlink(latches []string) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	_ = b.client.Unlink(ctx, latches...).Err() // they expire anyway
}

// close refuses further calls and waits for those under way, unless they are stuck.
func (b *batcher) close() {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.sweeper.Stop()
	forgot := b.forgot
	b.forgot = nil
	b.mu.Unlock()
	if !first {
		return
	}
	if len(forgot) > 0 {
		b.unlink(forgot)
	}
	select {
	case <-finished(&b.work):
	case <-time.After(defaultCallTimeout):
	}
}

// syncTimeout is how long replicas have to confirm an acquisition (1 s, Redisson's slavesSyncTimeout): many times what
// a healthy one takes. It also bounds asking a Cluster for nodes, and is how often replicas are counted.
const syncTimeout = defaultCallTimeout / 2

func (s *redisLocks) do(ctx context.Context, calls ...*call) {
	s.home(ctx, calls[0].words[0]).calls.do(ctx, calls...)
}

// direct makes calls in pipelines of their own, past the queues: renewals must not wait behind acquisitions.
func (s *redisLocks) direct(ctx context.Context, calls []*call) {
	lanes := make(map[*batcher][]*call)
	for _, c := range calls {
		lane := s.home(ctx, c.words[0]).calls
		lanes[lane] = append(lanes[lane], c)
	}
	var made sync.WaitGroup
	for lane, part := range lanes {
		made.Go(func() {
			var answers []answer
			err := lane.aside(ctx, func(ctx context.Context) { answers = lane.exec(ctx, part, nil) })
			for i, c := range part {
				if c.answer.err = err; err == nil {
					c.answer = answers[i]
				}
			}
		})
	}
	made.Wait()
}

const (
	// AllReplicas is, for Synced, as many as are connected.
	AllReplicas = -1

	// maxLag is when a silent replica no longer counts, in seconds, as Redis' min-replicas-max-lag has it: one that
	// hangs must not stop all locks until its connection is given up (repl-timeout, 60 s).
	maxLag = 10
	// redirects, a poll apart, bound how long the owner of a slot that moves is looked for.
	redirects = 5
)

// Synced makes an acquisition wait until n replicas have it, or AllReplicas (Redisson's default), so that a promotion
// does not forget it (WAIT; 1 s at most, less with a shorter CallTimeout). One that they do not confirm is given back:
// ErrUnsynced. Renewals and re-entries are not confirmed. Default: 0, none. AllReplicas is 0 where none is connected,
// as on a primary cut off from all: only a number helps then. AllReplicas needs the right to INFO, both to WAIT.
func Synced(n int) RedisOption { return func(s *redisLocks) { s.replicas = max(n, AllReplicas) } }

// replicas are those of one server, and how many of them are to confirm what is written.
type replicas struct {
	want int // as Synced says

	mu    sync.Mutex
	count int // when last asked
	asked time.Time
}

// needed returns how many are to confirm. After an error nothing may be sent.
func (r *replicas) needed(ctx context.Context, client redis.UniversalClient) (int, error) {
	if r == nil {
		return 0, nil
	}
	r.mu.Lock()
	count, age := r.count, time.Since(r.asked)
	r.mu.Unlock()
	if age < syncTimeout {
		return count, nil
	}
	return r.recount(ctx, client)
}

// recount asks the server for its replicas, and whether it allows WAIT: after an acquisition that would be too late.
func (r *replicas) recount(ctx context.Context, client redis.UniversalClient) (int, error) {
	count, err := r.want, error(nil)
	if r.want < 0 {
		var text string
		text, err = client.Info(ctx, "replication").Result()
		count = online(text)
	}
	if err == nil && count > 0 {
		err = client.Do(ctx, "wait", 0, 0).Err()
	}
	if err != nil {
		return 0, fmt.Errorf("%w: ask for replicas: %w", ErrNotSent, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count, r.asked = count, time.Now()
	return count, nil
}

// online counts the replicas that follow, by the text of INFO. One that still gets its first copy confirms nothing.
func online(info string) (n int) {
	for line := range strings.Lines(info) {
		_, replica, _ := strings.Cut(strings.TrimSpace(line), ":")
		says := strings.Split(replica, ",")
		lag := slices.IndexFunc(says, func(word string) bool { return strings.HasPrefix(word, "lag=") })
		if lag < 0 || !slices.Contains(says, "state=online") {
			continue
		}
		if seconds, err := strconv.Atoi(says[lag][len("lag="):]); err == nil && seconds <= maxLag {
			n++
		}
	}
	return n
}

// enough reports whether enough replicas answered a WAIT. Those that left since the count are not needed.
func (r *replicas) enough(ctx context.Context, client redis.UniversalClient, wait *redis.Cmd, need int) bool {
	confirmed, err := wait.Int()
	if err == nil && confirmed < need && r.want < 0 {
		need, err = r.recount(ctx, client)
	}
	return err == nil && confirmed >= need
}

func (b *batcher) syncTimeout() time.Duration {
	limit := min(syncTimeout, b.timeout/2)
	if one, ok := b.client.(*redis.Client); ok && one.Options().ReadTimeout > 0 {
		limit = min(limit, one.Options().ReadTimeout/2)
	}
	return limit
}

// take makes calls that acquire locks. To be confirmed, one goes to a Cluster's node directly, with redirections.
func (s *redisLocks) take(ctx context.Context, calls ...*call) {
	if s.replicas == 0 {
		s.do(ctx, calls...)
		return
	}
	c := calls[0] // a Cluster's only one
	s.home(ctx, c.words[0]).synced.do(ctx, calls...)
	cluster, ok := s.client.(*redis.ClusterClient)
	for n := 0; ok && c.answer.err != nil; n++ {
		cluster.ReloadState(ctx) // in the background
		moved := redis.HasErrorPrefix(c.answer.err, "MOVED") || redis.HasErrorPrefix(c.answer.err, "ASK")
		if n == redirects || !moved || !sleep(ctx, defaultPoll) {
			return
		}
		again := newCall(c.terms, c.words[:c.keys], c.words[c.keys:c.all]...)
		s.home(ctx, c.words[0]).synced.do(ctx, again)
		c.answer, c.alone = again.answer, true
	}
}

package service

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/budget"
	"seckill/model"
)

const (
	// askTimeout is what a probe has of it, so that there is time to say why it failed.
	askTimeout = 900 * time.Millisecond
	// lookShared is how old a shared answer may be: each dependency is asked ten times a second at most.
	lookShared = 2 * budget.Blink
)

// Probe asks one dependency whether it can be used.
type Probe struct {
	Name string
	Ask  func(ctx context.Context) error
	// Patience is how long sales go on without the dependency. Until then an instance that had it is ready.
	Patience time.Duration
}

// Check is the answer of one probe; Err is nil when sales go on. Note says what is wrong all the same.
type Check struct {
	Name string
	Err  error
	Note string
}

// Health tells whether this instance can serve. A stop makes it unready, lets load balancers notice, then drains it.
type Health struct {
	probes   []*probing
	leaving  atomic.Bool
	draining atomic.Bool

	unready atomic.Bool // the latest look found it so

	mu     sync.Mutex
	latest *healthLook
}

type healthLook struct {
	done   chan struct{} // closed when the rest is there
	checks []Check
	ended  time.Time
}

func (l *healthLook) sharedFor(span time.Duration) bool {
	if l == nil {
		return false
	}
	select {
	case <-l.done:
		return time.Since(l.ended) < span
	default:
		return true
	}
}

// NewHealth makes a Health that asks the probes given.
func NewHealth(probes ...Probe) *Health {
	h := &Health{}
	for _, probe := range probes {
		h.probes = append(h.probes, &probing{Probe: probe})
	}
	return h
}

// Check asks all probes at once, for at most a second, and answers in their order. Concurrent callers share a look.
func (h *Health) Check(ctx context.Context) []Check {
	look := h.look() //nolint:contextcheck // callers share it
	var checks []Check
	select {
	case <-look.done:
		checks = slices.Clone(look.checks)
	case <-ctx.Done():
		checks = []Check{{Name: "server", Err: fmt.Errorf("wait for the checks: %w", ctx.Err())}}
	}
	if h.leaving.Load() {
		checks = append(checks, Check{Name: "server", Err: model.Unavailable("about to stop", nil)})
	}
	return checks
}

// Ready reports what the latest look found, without a wait. One older than a second is renewed behind it.
func (h *Health) Ready() bool {
	if h.mu.TryLock() {
		stale := !h.latest.sharedFor(budget.Look)
		h.mu.Unlock()
		if stale {
			h.look()
		}
	}
	return !h.unready.Load()
}

// look is the look under way, or one that has just ended, or a new one.
func (h *Health) look() *healthLook {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latest.sharedFor(lookShared) {
		return h.latest
	}
	look := &healthLook{done: make(chan struct{}), checks: make([]Check, len(h.probes))}
	h.latest = look
	go func() {
		defer close(look.done)
		enough := make(chan struct{})
		over := time.AfterFunc(budget.Look, func() { close(enough) })
		defer over.Stop()
		var asked sync.WaitGroup
		for i, probe := range h.probes {
			asked.Go(func() { look.checks[i] = probe.check(enough) })
		}
		asked.Wait()
		h.unready.Store(slices.ContainsFunc(look.checks, func(c Check) bool { return c.Err != nil }))
		look.ended = time.Now()
	}()
	return look
}

// probing is a probe with what is known of it. One look at a time uses it.
type probing struct {
	Probe

	busy atomic.Bool // a question is under way, maybe one of an earlier look
	well bool        // it has answered once
	away time.Time   // since when it fails
}

// check asks, and leaves a probe behind that has not answered when enough is closed.
func (p *probing) check(enough <-chan struct{}) Check {
	err := p.ask(enough)
	if err == nil {
		p.well, p.away = true, time.Time{}
		return Check{Name: p.Name}
	}
	if p.away.IsZero() {
		p.away = time.Now()
	}
	if away := time.Since(p.away); p.well && away < p.Patience {
		return Check{Name: p.Name, Note: fmt.Sprintf("away for %s; sales go on without it until %s",
			away.Round(time.Second), p.Patience)}
	}
	return Check{Name: p.Name, Err: err}
}

// ask asks one question at a time: what hangs is not asked again and again.
func (p *probing) ask(enough <-chan struct{}) error {
	if !p.busy.CompareAndSwap(false, true) {
		return errNoAnswer
	}
	answer := make(chan error, 1)
	go func() {
		defer p.busy.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		answer <- p.Ask(ctx)
	}()
	select {
	case err := <-answer:
		return err
	case <-enough:
		return errNoAnswer
	}
}

var errNoAnswer = model.Unavailable(fmt.Sprintf("does not answer within %s", budget.Look), nil)

// StartLeaving makes the instance not ready for good.
func (h *Health) StartLeaving() { h.leaving.Store(true) }

// Leaving reports whether StartLeaving was called.
func (h *Health) Leaving() bool { return h.leaving.Load() }

// StartDraining ends what has no end of its own.
func (h *Health) StartDraining() { h.draining.Store(true) }

// Draining reports whether StartDraining was called.
func (h *Health) Draining() bool { return h.draining.Load() }

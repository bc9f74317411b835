package service

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"seckill/model"
)

// checkTimeout bounds one readiness check: a load balancer asks about every second,
// and a dependency that needs longer is not ready.
const checkTimeout = time.Second

// Probe asks one dependency whether it can be used.
type Probe struct {
	Name string
	Ask  func(ctx context.Context) error
}

// Check is the answer of one probe; Err is nil when all is well.
type Check struct {
	Name string
	Err  error
}

// Health tells whether this instance can serve. A stop has two steps. First the
// instance is not ready, and serves on until load balancers have noticed. Then it
// drains: it refuses new requests.
type Health struct {
	probes   []Probe
	leaving  atomic.Bool
	draining atomic.Bool
}

// NewHealth makes a Health that asks the probes given.
func NewHealth(probes ...Probe) *Health {
	return &Health{probes: probes}
}

// Check asks all probes at the same time, for a second at the most, and answers in
// their order.
func (h *Health) Check(ctx context.Context) []Check {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	checks := make([]Check, len(h.probes))
	var wg sync.WaitGroup
	for i, probe := range h.probes {
		wg.Go(func() { checks[i] = Check{Name: probe.Name, Err: probe.Ask(ctx)} })
	}
	wg.Wait()
	if h.leaving.Load() {
		checks = append(checks, Check{Name: "server", Err: model.Unavailable("about to stop", nil)})
	}
	return checks
}

// StartLeaving makes the instance not ready for good.
func (h *Health) StartLeaving() { h.leaving.Store(true) }

// StartDraining makes the instance refuse new requests.
func (h *Health) StartDraining() { h.draining.Store(true) }

// Draining reports whether StartDraining was called.
func (h *Health) Draining() bool { return h.draining.Load() }

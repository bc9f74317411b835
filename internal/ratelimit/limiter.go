// Package ratelimit bounds how many events each of many senders may cause, on one instance or on all together.
package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/lane"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// maxTracked senders (20 MB) are remembered. The one quiet longest is forgotten, and starts with its whole quota.
	maxTracked = 100_000
	// firstShare of its quota a sender long quiet may use before the instance asks: four instances exceed nothing.
	firstShare = 4
	// nextShare of what was left at the latest question may be used before the next one: other instances report later.
	nextShare = 16
	smallest  = 8 // quota of which anything is given away unasked. Smaller ones are exact
)

// Limiter gives every sender a quota. It is safe for concurrent use. A sender may use a share
// without a call; then the instance asks what all share. Without an answer its own decision counts.
type Limiter struct {
	name    string
	atLeast time.Duration // whose events may come at once, where the rate's Per is shorter
	shared  *Shared       // nil: this instance alone
	began   time.Time     // what instants count from: a step of the system's clock changes nothing
	current atomic.Pointer[limit]
}

// limit is one setting of a limiter, and the senders that were counted under it.
type limit struct {
	rate    model.Rate
	scope   string
	quota   quota
	senders *lru.Cache[string, *sender]
}

// sender is what this instance knows of one sender. Instants are ns since the limiter began.
type sender struct {
	mu       sync.Mutex
	idle     int64 // see quota; of this instance alone
	latest   int64 // event
	free     int64 // events it may use before the instance asks
	unasked  int64 // events it used since then
	refusing int64 // until when what the instances share refuses
}

// New makes a limiter that is off. Its name separates it from others that use the same Shared, which may be nil.
func New(name string, atLeast time.Duration, shared *Shared) *Limiter {
	l := &Limiter{name: name, atLeast: atLeast, shared: shared, began: time.Now()}
	l.current.Store(&limit{})
	return l
}

// Set changes the rate. Instances of one scope count together; without it alone. Another rate resets quotas.
func (l *Limiter) Set(rate model.Rate, scope string) {
	before := l.current.Load()
	switch {
	case rate.Off():
		l.current.Store(&limit{})
	case before.rate != rate || before.scope != scope:
		senders, _ := lru.New[string, *sender](maxTracked) // fails for no such size
		l.current.Store(&limit{rate: rate, scope: scope, quota: quotaOf(rate, l.atLeast), senders: senders})
	}
}

// Rate is the rate in force.
func (l *Limiter) Rate() model.Rate { return l.current.Load().rate }

// Take counts one event of a sender. It returns how long until there may be another one; zero allows the event.
func (l *Limiter) Take(ctx context.Context, key string) time.Duration {
	current := l.current.Load()
	if current.rate.Off() {
		return 0
	}
	return l.take(ctx, current, key, time.Now())
}

func (l *Limiter) take(ctx context.Context, c *limit, key string, now time.Time) time.Duration {
	s := c.sender(key)
	shared := l.shared
	if c.scope == "" {
		shared = nil
	}
	wait, ask, used := s.decide(c.quota, int64(now.Sub(l.began)), shared != nil)
	if !ask {
		return wait
	}
	verdict, err := shared.ask(ctx, Ask{
		Key:      c.scope + ":" + l.name + ":" + c.rate.String() + ":" + key,
		Emission: c.quota.emission, Capacity: c.quota.capacity, Used: used,
	})
	s.hear(c.quota, int64(time.Since(l.began)), verdict, err, used)
	return verdict.Wait
}

func (c *limit) sender(key string) *sender {
	if s, ok := c.senders.Get(key); ok {
		return s
	}
	s := &sender{latest: -int64(c.quota.capacity)}
	if earlier, there, _ := c.senders.PeekOrAdd(key, s); there {
		return earlier // another request of the same sender was first
	}
	return s
}

// decide is the instance's own decision: a wait or zero, and whether to ask, reporting so many earlier events.
func (s *sender) decide(q quota, now int64, together bool) (wait time.Duration, ask bool, used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusing > now {
		return time.Duration(s.refusing - now), false, 0
	}
	if s.idle, wait = q.take(s.idle, now); wait > 0 || !together {
		return wait, false, 0
	}
	if now-s.latest >= int64(q.capacity) && q.burst >= smallest {
		s.free, s.unasked = q.burst/firstShare, 0 // what was used before is given back
	}
	s.latest = now
	if s.unasked < s.free {
		s.unasked++
		return 0, false, 0
	}
	used, s.unasked = s.unasked, 0
	return 0, true, used
}

// hear notes the answer to what was asked about one event and the used ones before it.
func (s *sender) hear(q quota, now int64, verdict Verdict, err error, used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil: // they are reported the next time
		s.unasked = min(s.unasked+used+1, q.burst)
	case verdict.Wait > 0:
		s.idle -= int64(q.emission) // it did not happen
		s.free = 0
		s.refusing = max(s.refusing, now+int64(verdict.Wait))
	default:
		s.free = verdict.Left / nextShare
	}
}

// quota is the generic cell rate algorithm (ITU-T I.371, annex A; virtual scheduling). It keeps the instant when a
// sender has nothing in use. Each event moves that on; one that moves it further ahead than the capacity is refused.
type quota struct {
	emission time.Duration // in which one event is given back
	capacity time.Duration // in which all of them are
	burst    int64         // events that may come at once
}

// quotaOf allows the events of a rate at once, or those of atLeast where that is longer.
func quotaOf(r model.Rate, atLeast time.Duration) quota {
	burst := int64(r.Events)
	if r.Per < atLeast {
		burst *= int64(atLeast / r.Per)
	}
	emission := max(r.Per/time.Duration(r.Events), 1)
	return quota{emission: emission, capacity: emission * time.Duration(burst), burst: burst}
}

// take moves idle (ns, when nothing is in use) on by one event, or tells how long that must wait.
func (q quota) take(idle, now int64) (next int64, wait time.Duration) {
	idle = max(idle, now)
	if wait := time.Duration(idle-now) + q.emission - q.capacity; wait > 0 {
		return idle, wait
	}
	return idle + int64(q.emission), 0
}

const (
	// A second's worth of questions may wait; more are not asked.
	maxAsks      = 4096
	asksTogether = 128
	askers       = 2
)

// Ask asks for one event of a sender, and reports others that it had before.
type Ask struct {
	Key      string
	Emission time.Duration // in which one event is given back
	Capacity time.Duration // in which all that may come at once are
	Used     int64         // events before, not reported yet
}

// Verdict is the answer to an Ask.
type Verdict struct {
	Wait time.Duration // zero: the event is allowed, and counted
	Left int64         // events that may follow at once
}

// Shared asks what instances share, for all limiters. A request waits at most budget.Glance, and hardly at outages.
type Shared struct {
	group    *lane.Group[Ask, Verdict]
	began    time.Time
	quiet    atomic.Int64 // until when Redis is not asked, in ns since began; 0: it may be asked
	trouble  telemetry.Trouble
	failures prometheus.Counter
	log      *slog.Logger
}

// errQuiet says that the latest failure was a moment ago.
var errQuiet = errors.New("the shared limits do not answer")

// NewShared asks through take, which answers all asks in order or fails. Close ends it.
func NewShared(
	take func(ctx context.Context, asks []Ask) ([]Verdict, error), metrics prometheus.Registerer, log *slog.Logger,
) *Shared {
	s := &Shared{log: log, began: time.Now(), failures: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "seckill_shared_limit_failures_total",
		Help: "Questions to the limits that the instances share that failed: those requests were limited by this instance alone.",
	})}
	metrics.MustRegister(s.failures)
	s.group = lane.New(take, lane.Options{
		Writers: askers, MaxBatch: asksTogether, MaxQueue: maxAsks, Timeout: budget.Glance,
	})
	return s
}

// Close ends the questions under way.
func (s *Shared) Close(ctx context.Context) { s.group.Close(ctx) }

func (s *Shared) ask(ctx context.Context, ask Ask) (Verdict, error) {
	now := time.Since(s.began)
	quiet := s.quiet.Load()
	if quiet != 0 && (now < time.Duration(quiet) || !s.quiet.CompareAndSwap(quiet, int64(now+budget.Look))) {
		return Verdict{}, errQuiet
	}
	// A client that hangs up says nothing about Redis.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Glance)
	defer cancel()
	verdict, err := s.group.Do(limited, ask)
	s.trouble.Note(ctx, s.log, err, "rate limits count this instance alone: Redis does not answer",
		"rate limits count all instances again")
	if err != nil {
		s.failures.Inc()
		s.quiet.Store(int64(time.Since(s.began) + budget.Look))
		return Verdict{}, err
	}
	if quiet != 0 {
		s.quiet.Store(0)
	}
	return verdict, nil
}

// site is a /48's limit in /64s. A household has a /60 (16) or /56 (RFC 6177, RIPE-690), a /48 all 65,536.
const site = 16

// Addresses limits clients by IPv4 address or IPv6 /64, which one subscriber has, and wider by /48. Without a rate it does not.
type Addresses struct{ networks, sites *Limiter }

// NewAddresses makes limiters of addresses that are off. Shared may be nil.
func NewAddresses(shared *Shared) *Addresses {
	return &Addresses{New("addr", budget.Step, shared), New("site", budget.Step, shared)}
}

// Set is that of a Limiter.
func (a *Addresses) Set(rate model.Rate, scope string) {
	a.networks.Set(rate, scope)
	a.sites.Set(model.Rate{Events: site * rate.Events, Per: rate.Per}, scope)
}

// Rate is the rate in force for an IPv4 address or a /64.
func (a *Addresses) Rate() model.Rate { return a.networks.Rate() }

// Take is that of a Limiter.
func (a *Addresses) Take(ctx context.Context, address netip.Addr) time.Duration {
	if wait := a.networks.Take(ctx, Network(address)); wait > 0 || address.Is4() || address.Is4In6() {
		return wait
	}
	wide, _ := address.WithZone("").Prefix(48)
	return a.sites.Take(ctx, wide.String())
}

// Network is the part of an address that shares a limit: an IPv4 address, or a /64.
func Network(address netip.Addr) string {
	if address = address.Unmap(); address.Is4() || !address.IsValid() {
		return address.String()
	}
	narrow, _ := address.WithZone("").Prefix(64)
	return narrow.String()
}

const (
	// patience is how many refusals a second an address hears at once. After ten quiet seconds it hears 1,000 at once.
	patience  = 100
	maxBraked = 2000 // refusals are held back at once, some 20 KB each. Further ones are answered at once
)

// Brake slows down refused clients: a refusal's cost is reading its request, and a late answer delays the next one.
type Brake struct {
	refusals *Addresses // of this instance alone
	places   chan struct{}
}

// NewBrake makes a brake.
func NewBrake() *Brake {
	b := &Brake{refusals: NewAddresses(nil), places: make(chan struct{}, maxBraked)}
	b.refusals.Set(model.Rate{Events: patience, Per: time.Second}, "")
	return b
}

// Hold counts a refusal of an address, and returns when it may be answered: at once or a second later. It tells which.
func (b *Brake) Hold(ctx context.Context, address netip.Addr) (held time.Duration) {
	if b.refusals.Take(ctx, address) == 0 {
		return 0
	}
	select {
	case b.places <- struct{}{}:
		defer func() { <-b.places }()
	default:
		return 0
	}
	began := time.Now()
	poll.Pause(ctx, budget.Look)
	return time.Since(began)
}

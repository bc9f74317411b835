package service

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/password"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

// LimitDeps are what Limits works with; all are required.
type LimitDeps struct {
	Settings model.Limits // of this instance
	// Read and Store are of the limits that an administrator has set.
	Read  func(ctx context.Context) (model.LimitRecord, error)
	Store func(ctx context.Context, patch model.LimitsPatch) (model.LimitRecord, error)
	// Announce tells the other instances that limits were changed; it may fail.
	Announce func(ctx context.Context, deployment string) error
	// Apply puts limits into force on this instance. Deployment names those that count together.
	Apply func(limits model.Limits, deployment string)
	Log   *slog.Logger
}

// Limits are the rate limits of all instances: their settings, unless an administrator has set others.
type Limits struct {
	deps    LimitDeps
	trouble telemetry.Trouble

	mu      sync.Mutex // held while limits are read and applied, so that the latest win
	inForce atomic.Pointer[model.Limits]
}

// NewLimits puts the settings into force; Refresh and Run look at the database.
func NewLimits(deps LimitDeps) *Limits {
	l := &Limits{deps: deps}
	l.inForce.Store(&deps.Settings)
	deps.Apply(deps.Settings, "")
	return l
}

// InForce tells which limits this instance applies.
func (l *Limits) InForce() model.Limits { return *l.inForce.Load() }

// Change sets limits for all instances, and returns those in force. Others obey within a second.
func (l *Limits) Change(ctx context.Context, patch model.LimitsPatch) (model.Limits, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record, err := l.deps.Store(ctx, patch)
	if err != nil {
		return model.Limits{}, err
	}
	l.apply(ctx, record)
	if err := l.deps.Announce(ctx, record.Deployment); err != nil {
		l.deps.Log.WarnContext(ctx, "the other instances learn of the new rate limits a moment later",
			slog.Any("error", err))
	}
	return l.InForce(), nil
}

// Refresh looks at the database, and leaves the limits as they are when it does not answer.
func (l *Limits) Refresh(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record, err := l.deps.Read(ctx)
	if err == nil {
		l.apply(ctx, record)
	}
	if ctx.Err() == nil {
		l.trouble.Note(ctx, l.deps.Log, err, "rate limits stay as they are: they cannot be read",
			"rate limits can be read again")
	}
}

// Run looks at the database until ctx ends.
func (l *Limits) Run(ctx context.Context) { poll.Every(ctx, budget.Brief, func() { l.Refresh(ctx) }) }

func (l *Limits) apply(ctx context.Context, record model.LimitRecord) {
	limits := record.Set.Of(l.deps.Settings)
	l.deps.Apply(limits, record.Deployment)
	if limits != l.InForce() {
		l.deps.Log.InfoContext(ctx, "rate limits changed",
			slog.String("user", limits.User.String()), slog.String("addr", limits.Addr.String()))
		l.inForce.Store(&limits)
	}
}

// attempts limit who may try a password, by address and by account. Nobody is locked out: no wait exceeds
// budget.Settled, and an address without recent failures does not wait for what others did to the account. One
// address can try some seven passwords a minute. Many addresses can try one account twelve times a minute from those
// without a failure, twice from the others. What passes is hashed in turns, see package password.
type attempts struct {
	mu sync.Mutex // held from the look at the waits to the beginning of an attempt

	addresses *backoff.Failures // by address
	accounts  *backoff.Failures // by account, of addresses that have failed lately
	strangers *backoff.Failures // by account, of addresses that have not
	hashes    *backoff.Failures // by address: whatever is hashed, right or wrong
	joiners   *backoff.Failures // by address: registrations

	held atomic.Int32 // requests that are refused and not answered yet
}

const (
	maxHeld = 1_000 // of requests at once: some 20 MB. Further ones are refused at once
	// maxRemembered addresses, and accounts, each limit remembers: 10 MB. Who has more is not stopped by one.
	maxRemembered = 50_000
)

func newAttempts() *attempts {
	made := &attempts{}
	for _, limit := range []struct {
		failures **backoff.Failures
		free     int
		forget   time.Duration
	}{
		// Many people share an address, and some of them mistype.
		{&made.addresses, 20, 10 * time.Second},
		// One person shares an account with nobody.
		{&made.accounts, 5, time.Minute},
		{&made.strangers, 10, 5 * time.Second},
		// An office that logs in at once; then five a second, a tenth of what one core hashes.
		{&made.hashes, 150, 200 * time.Millisecond},
		// An account is for long: a network makes a hundred at once, then one a second.
		{&made.joiners, 100, time.Second},
	} {
		policy := backoff.Policy{Free: limit.free, First: budget.Look, Longest: budget.Settled, Forget: limit.forget}
		*limit.failures = backoff.New(policy, maxRemembered, time.Now)
	}
	return made
}

type attempt struct {
	caller password.Caller
	failed []counted // as long as it is not known to be otherwise
}

type counted struct {
	by    *backoff.Failures
	key   string
	began backoff.Attempt
}

// login lets an address try a password of an account, or says with RATE_LIMITED how long it has to wait.
func (a *attempts) login(ctx context.Context, address, account string) (*attempt, error) {
	return a.begin(ctx, address, "Too many failed logins: wait before you try again.", func(clean bool) []counted {
		if clean {
			return []counted{{by: a.addresses, key: address}, {by: a.strangers, key: account}}
		}
		return []counted{{by: a.addresses, key: address}, {by: a.accounts, key: account}}
	})
}

// register lets an address register, or says with RATE_LIMITED how long it has to wait.
func (a *attempts) register(ctx context.Context, address string) (*attempt, error) {
	return a.begin(ctx, address, "Too many registrations from this address.", func(bool) []counted {
		return []counted{{by: a.joiners, key: address}}
	})
}

// begin counts an attempt of an address, clean or not, by some limits, and as one hash. It retries a refusal once.
func (a *attempts) begin(
	ctx context.Context, address, refusal string, limits func(clean bool) []counted,
) (*attempt, error) {
	begun, err := a.try(address, refusal, limits)
	if err == nil {
		return begun, nil
	}
	defer a.held.Add(-1)
	if a.held.Add(1) > maxHeld {
		return nil, err
	}
	if poll.Pause(ctx, budget.Look); ctx.Err() != nil {
		return nil, err
	}
	return a.try(address, refusal, limits)
}

func (a *attempts) try(address, refusal string, limits func(clean bool) []counted) (*attempt, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clean := a.addresses.Clean(address)
	all := limits(clean)
	wait := a.hashes.Wait(address)
	for _, one := range all {
		wait = max(wait, one.by.Wait(one.key))
	}
	if wait > 0 {
		return nil, tooMany(refusal, wait)
	}
	a.hashes.Begin(address)
	for i, one := range all {
		all[i].began = one.by.Begin(one.key)
	}
	return &attempt{caller: password.Caller{Address: address, Doubtful: !clean}, failed: all}, nil
}

func (a *attempt) succeeded() {
	for _, one := range a.failed {
		one.by.TakeBack(one.began)
	}
}

// undecided says that the password was not compared, for our reason. A client that hung up learnt nothing.
func (a *attempt) undecided(ctx context.Context) {
	if ctx.Err() == nil {
		a.succeeded()
	}
}

func tooMany(detail string, wait time.Duration) error {
	return &model.Error{Code: model.CodeRateLimited, Detail: detail, RetryAfter: wait}
}

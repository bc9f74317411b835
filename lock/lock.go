// Package lock holds distributed locks: goroutines of many processes exclude each other by way of a store they share.
//
//	locks := lock.New(lock.NewRedisStore(client)) // once per process
//	err := locks.Do(ctx, "order:42", func(ctx context.Context) error { … })
//
// By hand it is [Mutex.Lock] and [Lease.Unlock]. The locks of [NewRedisStore] are those of Redisson, so Java and Go
// processes exclude and wake each other. No lease stops a process that is paused: what must not happen twice needs a
// token or a constraint where it happens. See README.md. Store is for authors of other stores.
package lock

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"
)

var (
	// ErrTimeout means that another owner held the lock until the wait budget had passed. Nothing is left held.
	ErrTimeout = errors.New("lock: not free within the wait budget")

	// ErrHeld is what TryLock returns when another owner holds the lock.
	ErrHeld = errors.New("lock: held by somebody else")

	// ErrLost is the cause of a lease's ended context: the lock is lost or not provable. Unlock and Extend return it.
	ErrLost = errors.New("lock: lost")

	// ErrNotHeld is what Unlock returns for a lease that was unlocked before.
	ErrNotHeld = errors.New("lock: not held")

	// ErrUnlocked is the cause with which the context of a lease ends when it is unlocked.
	ErrUnlocked = errors.New("lock: unlocked")

	// ErrUnsynced means that fewer replicas confirmed in time than Synced asks for. The lock is given back.
	ErrUnsynced = errors.New("lock: not confirmed by enough replicas")

	// ErrClosed means that the client has been closed.
	ErrClosed = errors.New("lock: client closed")

	// ErrUnknown means that no answer came in time: the store may have done the request. An acquisition is then undone.
	ErrUnknown = errors.New("lock: the store did not answer, the outcome is unknown")

	// ErrRefused means that the store cannot do this at all (a key of another type, no permission) and changed nothing.
	ErrRefused = errors.New("lock: refused by the store")

	// ErrNotSent means that the request did not leave this process, so nothing happened.
	ErrNotSent = errors.New("lock: the request was not sent")

	// ErrOverloaded means that more calls wait for the store than may be queued. It comes wrapped with ErrNotSent.
	ErrOverloaded = errors.New("lock: too many calls are waiting for the store")
)

// isGone reports whether a renewal found its lock gone. ErrUnknown outweighs ErrLost of another lock's lease.
func isGone(err error) bool { return errors.Is(err, ErrLost) && !errors.Is(err, ErrUnknown) }

//go:embed lua/*.lua sql/*.sql
var files embed.FS

func file(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Locker is what a Mutex, All and Majority have in common.
type Locker interface {
	// Name returns what the lock is called in messages.
	Name() string
	// Lock takes the lock. It waits for it as the options say.
	Lock(ctx context.Context, opts ...Option) (*Lease, error)
	// TryLock takes the lock if it is free, and returns ErrHeld if it is not.
	TryLock(ctx context.Context, opts ...Option) (*Lease, error)

	lock(ctx context.Context, a attempt) (*Lease, error)
	settings() settings
	key() string // what it is within this process
}

// Mutex is one named lock. It has no state of its own and is safe for concurrent use.
type Mutex struct {
	client *Client
	name   string
}

// Name returns the lock's name in the store.
func (m *Mutex) Name() string { return m.name }

func (m *Mutex) settings() settings { return m.client.set }

func (m *Mutex) key() string { return m.client.id + "/" + m.name }

// Lock takes the lock. It waits for another owner until the budget of the option Wait has passed (ErrTimeout), or ctx
// ends (its cause). Waiters of one client are served in the order they came. ctx bounds the acquisition alone: see
// While for the hold. If ctx derives from the context of a lease of this lock, the owner re-enters: the lock counts one
// more hold and needs one more Unlock. See Detach for the opposite.
//
// ErrLost: the answer came too late for the lease, or a re-entry found the lock gone. ErrClosed: the client is closed.
// Others are the store's own. After an error nothing stays held: what was taken is undone in the background.
func (m *Mutex) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, newAttempt(m.client.set, opts))
}

// TryLock takes the lock if no other owner holds it, ahead of waiters, and returns ErrHeld otherwise. The option Wait
// has no effect. While another call of the same owner acquires or releases the lock, it returns ErrHeld too, and Lock
// with Wait(0) returns ErrTimeout.
func (m *Mutex) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	return m.lock(ctx, newAttempt(m.client.set, opts).trying())
}

func (m *Mutex) lock(ctx context.Context, a attempt) (*Lease, error) {
	c := m.client
	if !c.enter() {
		return nil, fmt.Errorf("lock %s: %w", m.name, ErrClosed)
	}
	defer c.underWay.Done()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("lock %s: %w", m.name, context.Cause(ctx))
	}
	ctx, own := withOwner(ctx)
	a.lease = c.set.bound(a.lease)
	s := own.slot(*m)
	lease, err := s.acquire(ctx, a)
	if err != nil {
		s.drop()
		return nil, err
	}
	return lease, nil
}

// acquire takes the lock for the owner, or re-enters, in the slot's turn: a second goroutine waits and re-enters.
func (s *slot) acquire(ctx context.Context, a attempt) (*Lease, error) {
	start := time.Now()
	name := s.lock.name
	if err := s.take(ctx, a); err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	defer s.give()

	l := &Lease{name: name, life: a.lifeOf(ctx, s.owner), term: a.lease, watchdog: a.watchdog}
	if s.held != nil {
		if ok, _ := s.held.state(); ok {
			return l, s.held.reenter(ctx, l)
		}
	}
	if !a.forever {
		a.wait = max(a.wait-time.Since(start), 0)
	}
	h, err := s.lock.client.acquire(ctx, s, a)
	if err != nil {
		return nil, err
	}
	l.hold = h
	s.held = h
	if !h.add(l) {
		h.undo(ErrLost)
		return nil, fmt.Errorf("lock %s: %w", name, ErrLost)
	}
	return l, nil
}

const (
	// defaultUnlockTimeout bounds Unlock with its repetitions (3 s): a deferred call must not hold up its function.
	defaultUnlockTimeout = 3 * defaultCallTimeout / 2
	// minLease leaves a usable lease after the drift has been taken off (10 ms).
	minLease = 2 * swiftly
)

// ClientOption changes a Client.
type ClientOption func(*settings)

type settings struct {
	lease         time.Duration
	longest       time.Duration // see LongestLease; 0: there is no bound
	unlockTimeout time.Duration
	poll          time.Duration
	probe         time.Duration
	log           *slog.Logger
}

func defaultSettings() settings {
	return settings{
		lease:         defaultLease,
		unlockTimeout: defaultUnlockTimeout,
		poll:          defaultPoll,
		probe:         defaultProbe,
		log:           slog.New(slog.DiscardHandler),
	}
}

func orDefault(d, standard time.Duration) time.Duration { return cmp.Or(max(d, 0), standard) }

// WatchdogLease sets the lease of locks that are renewed while they are held (default 30 s, as Redisson's): how long
// others wait after a holder crashed. It is renewed each third of it. Less than 10 ms is taken as 10 ms.
func WatchdogLease(d time.Duration) ClientOption {
	return func(s *settings) { s.lease = max(d, minLease) }
}

// LongestLease bounds every lease of the client, at 10 ms to 49 days: a longer WatchdogLease, LeaseTime or Extend is
// cut to it. The names of the client's holders contain the bound. A lease given while the store's clock was ahead lasts
// too long once that is set right; the holder, and any client of this package that asks for the lock, cuts it to the
// bound. Without a bound, as with Redisson's holders, the lease stays as long as the store has it.
func LongestLease(d time.Duration) ClientOption {
	return func(s *settings) { s.longest = min(max(d, minLease), math.MaxUint32*time.Millisecond) }
}

func (s settings) bound(lease time.Duration) time.Duration {
	if s.longest > 0 {
		lease = min(lease, s.longest)
	}
	return lease
}

// UnlockTimeout bounds Lease.Unlock (default 3 s, also of 0 or less); later it goes on in the background.
func UnlockTimeout(d time.Duration) ClientOption {
	return func(s *settings) { s.unlockTimeout = orDefault(d, defaultUnlockTimeout) }
}

// PollEvery is how often a waiter asks without messages (default 50 ms, also of 0 or less).
func PollEvery(d time.Duration) ClientOption {
	return func(s *settings) { s.poll = orDefault(d, defaultPoll) }
}

// ProbeEvery sets how often the first waiter of a process asks although its subscription is live (default 500 ms, also
// of 0 or less): only this finds out a deleted or flushed key, and a lost message.
func ProbeEvery(d time.Duration) ClientOption {
	return func(s *settings) { s.probe = orDefault(d, defaultProbe) }
}

// Logger sets where lost locks and failed renewals are logged. Default, and nil: nowhere.
func Logger(l *slog.Logger) ClientOption {
	return func(s *settings) { s.log = cmp.Or(l, slog.New(slog.DiscardHandler)) }
}

// Option changes one Lock.
type Option func(*attempt)

// attempt is what the options of one Lock add up to.
type attempt struct {
	wait     time.Duration
	forever  bool
	try      bool
	lease    time.Duration
	watchdog bool
	fenced   bool
	life     context.Context //nolint:containedctx // what the lease's context derives from; nil: see lifeOf
}

// Wait sets how long Lock waits for another owner; 0 or less means one attempt. Without it Lock waits until ctx ends. A
// store that does not answer is bounded by its CallTimeout and the context alone.
func Wait(d time.Duration) Option { return func(a *attempt) { a.wait, a.forever = max(d, 0), false } }

// LeaseTime makes the lock last d and not be renewed: it ends by itself even if its holder lives on. Without it the
// watchdog renews the lock until it is unlocked. Less than 10 ms is taken as 10 ms.
func LeaseTime(d time.Duration) Option {
	return func(a *attempt) { a.lease, a.watchdog = max(d, minLease), false }
}

// While makes the hold end with a context: the lease's context derives from it, and when it ends the lock is no longer
// renewed, so is free within a lease. Without it a lock is held until Unlock, even if its goroutine is gone.
func While(life context.Context) Option { return func(a *attempt) { a.life = life } }

// Fenced makes a lock of several parts (All, Majority) spend a round on a growing token. Single locks have one.
func Fenced() Option { return func(a *attempt) { a.fenced = true } }

// lifeOf is the parent of the lease's context. Lock's ctx bounds the acquisition alone, and brings values and owner.
func (a attempt) lifeOf(ctx context.Context, own *owner) context.Context {
	if a.life != nil {
		return context.WithValue(a.life, ownerKey{}, own)
	}
	return context.WithoutCancel(ctx)
}

func (a attempt) once() bool { return !a.forever && a.wait == 0 }

// budget returns a channel that fires when the wait is over; nil when ctx alone ends it.
func (a attempt) budget() <-chan time.Time {
	if a.forever {
		return nil
	}
	return time.After(a.wait)
}

func (a attempt) trying() attempt {
	a.try, a.wait, a.forever = true, 0, false
	return a
}

func newAttempt(s settings, opts []Option) attempt {
	a := attempt{forever: true, lease: s.lease, watchdog: true}
	for _, o := range opts {
		o(&a)
	}
	return a
}

func logName(v string) slog.Attr   { return slog.String("lock", v) }
func logHolder(v string) slog.Attr { return slog.String("holder", v) }
func logError(err error) slog.Attr { return slog.Any("error", err) }

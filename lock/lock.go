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
	s.held = h
	return l, h.lend(l)
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

// Store takes, renews and gives back named locks, in one attempt per call; the Client waits, renews and gives up.
//
// Every method MUST return when its context ends, and in bounded time when that never ends, with an error that wraps
// ErrUnknown if the request may have been executed. Every method MUST be idempotent: a request executed twice has the
// effect and the answer of one. After an error of Acquire that wraps ErrRefused or ErrNotSent, and not ErrUnknown,
// nothing happened, and the client undoes nothing. After any other error it calls Release with Abandon.
type Store interface {
	// Acquire takes the lock for r.Holder, or sets the hold count of a holder that has it. It never shortens a lease. A
	// count above one for a holder that is not there any more MUST NOT take the lock: its state is Lost.
	Acquire(ctx context.Context, r Request) (Grant, error)

	// Renew makes all leases last r.Lease from now, at least, or with r.Exact exactly so long. It returns one error for
	// each: nil when renewed, ErrLost when the holder does not have the lock any more, another when neither is known.
	// The failure of one lock, or of one node of a Cluster, MUST NOT affect the others.
	Renew(ctx context.Context, rs []Request) []error

	// Release sets the hold count; at zero it frees the lock and wakes its waiters. It returns false when the holder
	// did not have it. With r.Abandon the store MUST also refuse an Acquire of the same holder that arrives later.
	Release(ctx context.Context, r Request) (bool, error)

	// ForceRelease frees the lock, whichever owner holds it, wakes its waiters, and returns whether it was held.
	ForceRelease(ctx context.Context, name string) (bool, error)

	// Holder returns who has the lock, "" for none, and how long the lease still runs; below 0 without an end.
	Holder(ctx context.Context, name string) (holder string, left time.Duration, err error)

	// Watch calls wake, which does not block, each time the lock may have become free and each time the watch becomes
	// live or ceases to be. A store without messages returns nil, and the client asks at intervals.
	Watch(ctx context.Context, name string, wake func()) Watch

	// Close frees what the store itself holds (not the client or database it was made from). It is safe to call twice.
	Close() error
}

// Passer is a Store that can hand a lock on in one step, used between waiters of one process. When another process
// waits too, it MUST release the lock and return Held false. After an error but ErrUnknown the client calls Release.
type Passer interface {
	Pass(ctx context.Context, from, to Request) (Passed, error)
}

// Watch is a subscription to one lock.
type Watch interface {
	// Live reports whether messages arrive at present.
	Live() bool
	// Stop ends the watch; wake is not called after it returned, except by a call that had begun before.
	Stop()
}

// Request names a lock and a holder.
type Request struct {
	Name   string        // of the lock
	Holder string        // unique for each outermost acquisition: "<uuid>:<integer>"
	Holds  int           // Acquire, Release: the hold count afterwards
	Lease  time.Duration // Acquire, Renew: how long the lock lasts unless it is renewed
	Token  int64         // Acquire: the token is to be at least this; 0 for no matter

	// Exact is set on a Renew that may shorten the lease.
	Exact bool

	// Once is set on a Release or Pass when the store said so in the Grant.
	Once bool

	// Abandon is set on the Release of an acquisition whose outcome is unknown.
	Abandon bool
}

// State is what an Acquire found.
type State int

// The answers to an Acquire.
const (
	StateBusy State = iota // somebody else holds it
	StateHeld              // the holder of the request holds it
	StateLost              // the holder of the request had it or gave it up, and cannot have it any more
)

// Grant is the answer to an Acquire.
type Grant struct {
	State     State
	Token     int64         // StateHeld: the fencing token, 0 if the store keeps none
	Remaining time.Duration // StateBusy: of the lease in the way; 0 when not known

	// Once: the request was surely sent only once, so that no copy can arrive after the holder's Release.
	Once bool

	// Stray: a copy of the request may still arrive and take the lock. Who was refused and leaves must give it back.
	Stray bool

	// Unsynced, with StateHeld: fewer replicas have it than were to be waited for. The client gives it back.
	Unsynced bool
}

// Passed is the answer to a Pass.
type Passed struct {
	Was   bool  // the first holder was still there
	Held  bool  // the second one holds the lock now; else it is free
	Token int64 // of the second holder
	Once  bool  // as in Grant, for the second holder, as is Unsynced

	Unsynced bool
}

// The budgets of time. Every other span of this package is derived from one of them by name, where it is used.
const (
	// tick is the granularity with which Redis expires keys.
	tick = time.Millisecond
	// swiftly is less than go-redis's pause before it repeats (8 ms): no copy is under way after so fast an answer.
	swiftly = 5 * time.Millisecond
	// moment is several round trips to a healthy store.
	moment = 20 * time.Millisecond
	// defaultPoll is how often the first waiter asks without messages: its most loss, 20 requests a second a lock.
	defaultPoll = 50 * time.Millisecond
	// defaultProbe is how often it asks beside messages, because a deleted key sends none: twice a second a lock.
	defaultProbe = 500 * time.Millisecond
	// defaultCallTimeout bounds one call to a store. A slower lock is of no use to an interactive caller.
	defaultCallTimeout = 2 * time.Second
	// defaultLease is Redisson's lockWatchdogTimeout: three renewals fit in, and one can wait for it after a crash.
	defaultLease = 30 * time.Second
	// retention is how long a token outlives its lock: longer than a server's clock is ever set back by.
	retention = time.Hour
)

// never is the first setting of a timer that is reset before it is waited for.
const never = retention

// validUntil is when a lease asked for at sent, before the store counts, can no longer be relied on. The drift is 1 %
// for clocks of different speeds, and two ticks for expiry in Redis and timers here (as in Redlock).
func validUntil(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - lease/100 - 2*tick)
}

// sleep waits for d, or until ctx ends, and then returns false.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff is the pauses between attempts. They double: a store that comes back is not met by all at once.
type backoff struct{ shortest, longest, next time.Duration }

func (b *backoff) sleep(ctx context.Context) bool {
	d := max(b.next, b.shortest)
	b.next = min(2*d, b.longest)
	return sleep(ctx, d)
}

// bell wakes one goroutine, at once or when it looks next.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

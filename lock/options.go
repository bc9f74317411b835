package lock

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"time"
)

const (
	// defaultUnlockTimeout bounds Unlock with all its repetitions (3 s): the longest a deferred call may hold up its
	// function.
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

// orDefault replaces a duration that makes no sense by the default.
func orDefault(d, standard time.Duration) time.Duration {
	if d <= 0 {
		return standard
	}
	return d
}

// WatchdogLease sets the lease of locks that are renewed while they are held (default 30 s, as Redisson's): how long
// others wait after a holder crashed. It is renewed each third of it. Less than 10 ms is taken as 10 ms.
func WatchdogLease(d time.Duration) ClientOption {
	return func(s *settings) { s.lease = max(d, minLease) }
}

// LongestLease bounds every lease of the client: a longer WatchdogLease, LeaseTime or Extend is cut to it. The names of
// the client's holders contain the bound. When the store's clock was ahead and is set right, a lease that was given
// meanwhile lasts too long by as much; the holder, and any client of this package that asks for the lock, cuts it to
// the bound again. Without a bound, as with Redisson's holders, the lease stays as long as the store has it. Less than
// 10 ms is taken as 10 ms; more than 49 days as 49 days.
func LongestLease(d time.Duration) ClientOption {
	return func(s *settings) { s.longest = min(max(d, minLease), math.MaxUint32*time.Millisecond) }
}

// bound cuts a lease to the longest one.
func (s settings) bound(lease time.Duration) time.Duration {
	if s.longest > 0 {
		lease = min(lease, s.longest)
	}
	return lease
}

// UnlockTimeout bounds Lease.Unlock with its repetitions (default 3 s). A lock that is not given back by then is given
// back in the background. 0 or less is the default.
func UnlockTimeout(d time.Duration) ClientOption {
	return func(s *settings) { s.unlockTimeout = orDefault(d, defaultUnlockTimeout) }
}

// PollEvery sets how often a waiter asks while no messages arrive (default 50 ms: what a waiter may lose when the
// subscription is down). 0 or less is the default.
func PollEvery(d time.Duration) ClientOption {
	return func(s *settings) { s.poll = orDefault(d, defaultPoll) }
}

// ProbeEvery sets how often the first waiter of a process asks although its subscription is live (default 500 ms): a
// key that was deleted or flushed, and a message that was lost, are found out in no other way. 0 or less is the
// default.
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

// Wait sets how long Lock waits while another owner holds the lock; 0 or less means one attempt. Without it Lock waits
// until its context ends. It bounds waiting only: the store's CallTimeout and the context bound a store that does not
// answer.
func Wait(d time.Duration) Option {
	return func(a *attempt) { a.wait, a.forever = max(d, 0), false }
}

// LeaseTime makes the lock last d and not be renewed: it ends by itself even if its holder lives on. Without it the
// watchdog renews the lock until it is unlocked. Less than 10 ms is taken as 10 ms.
func LeaseTime(d time.Duration) Option {
	return func(a *attempt) { a.lease, a.watchdog = max(d, minLease), false }
}

// While makes the hold end with a context: the lease's context derives from it, and when it ends the lock is no longer
// renewed, and so is free within a lease. Without it a lock is held until Unlock, also when the goroutine that took it
// is gone.
func While(life context.Context) Option {
	return func(a *attempt) { a.life = life }
}

// Fenced makes a lock of several parts (All, Majority) spend one more round on a token that grows from holder to
// holder. Single locks always have one.
func Fenced() Option {
	return func(a *attempt) { a.fenced = true }
}

// lifeOf is what the lease's context derives from. The context given to Lock, ctx, bounds the acquisition alone; it
// brings the values and the owner.
func (a attempt) lifeOf(ctx context.Context, own *owner) context.Context {
	if a.life != nil {
		return context.WithValue(a.life, ownerKey{}, own)
	}
	return context.WithoutCancel(ctx)
}

// once reports whether there is one attempt only.
func (a attempt) once() bool { return !a.forever && a.wait == 0 }

// budget returns a channel that fires when the wait is over; nil when ctx alone ends it.
func (a attempt) budget() <-chan time.Time {
	if a.forever {
		return nil
	}
	return time.After(a.wait)
}

// trying is the attempt of TryLock.
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

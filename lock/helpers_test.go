package lock_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "holder" {
		os.Exit(holder())
	}
	if !check.Faults { // what the command line says comes later, and wins
		_ = flag.Set("rapid.checks", "4")
		_ = flag.Set("rapid.steps", "20")
	}
	testserver.Main(m)
}

func bubbles(t *testing.T, tests map[string]func(t *testing.T)) {
	t.Helper()
	for what, run := range tests {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, run)
		})
	}
}

// No test outlives a calm lease: a short one would be lost by chance. Tests about time run in a bubble.
const calm = time.Hour

func nameOf(t testing.TB) string {
	t.Helper()
	return "lock:" + strings.ReplaceAll(t.Name(), " ", "_") + ":" + rand.Text()[:8]
}

// patient are the settings of a client that is never too late for a busy machine.
func patient(t testing.TB, url string) *redis.Options {
	t.Helper()
	opt := check.Value(redis.ParseURL(url))(t)
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = check.Deadline, check.Deadline,
		check.Deadline, check.Deadline
	return opt
}

func connect(t testing.TB, opt *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func dial(t testing.TB, url string) *redis.Client {
	t.Helper()
	opt := patient(t, url)
	opt.ContextTimeoutEnabled = true
	return connect(t, opt)
}

// plain is a client as go-redis makes it: it ignores contexts' deadlines, and repeats commands longer than a cut lasts.
func plain(t testing.TB, url string) *redis.Client {
	t.Helper()
	opt := patient(t, url)
	opt.MaxRetries, opt.MaxRetryBackoff = 100, 10*time.Millisecond
	return connect(t, opt)
}

func redisStore(client redis.UniversalClient, opts ...lock.RedisOption) lock.Store {
	return lock.NewRedisStore(client, append([]lock.RedisOption{lock.CallTimeout(check.Deadline)}, opts...)...)
}

func locksOn(t testing.TB, client redis.UniversalClient, opts ...lock.ClientOption) *lock.Client {
	t.Helper()
	return newLocks(t, redisStore(client), opts...)
}

func newLocks(t testing.TB, store lock.Store, opts ...lock.ClientOption) *lock.Client {
	t.Helper()
	return closing(t, lock.New(store, append([]lock.ClientOption{
		lock.WatchdogLease(calm),
		lock.UnlockTimeout(check.Deadline),
	}, opts...)...))
}

// onlyMessages has a waiter learn of an unlock by a message or not at all.
func onlyMessages() []lock.ClientOption {
	return []lock.ClientOption{lock.PollEvery(calm), lock.ProbeEvery(calm)}
}

// bench is the Redis that all tests share, with a lock of the test's own: looked at directly, used through a line.
type bench struct {
	name   string
	line   *testserver.Line
	direct *redis.Client
}

func newBench(t testing.TB) bench {
	t.Helper()
	direct := dial(t, testserver.SharedRedis(t))
	return bench{nameOf(t), testserver.NewLine(t, direct.Options().Addr), direct}
}

func (b bench) url() string { return "redis://" + b.line.Addr() + "/0" }

func (b bench) held() bool { return b.direct.Exists(context.Background(), b.name).Val() == 1 }

func (b bench) noOrphan(t testing.TB) {
	t.Helper()
	check.Eventually(t, "nobody has "+b.name, func() bool {
		n, err := b.direct.Exists(t.Context(), b.name).Result()
		return err == nil && n == 0
	})
}

// token is the counter of the bench's lock: it grows with each acquisition that is carried out.
func (b bench) token() string {
	return b.direct.Get(context.Background(), "redisson_lock_token:{"+b.name+"}").Val()
}

func subscribed(t testing.TB, c *redis.Client, name string) int64 {
	t.Helper()
	channel := "redisson_lock__channel:{" + name + "}"
	return check.Value(c.PubSubNumSub(context.Background(), channel).Result())(t)[channel]
}

func noSubscription(t testing.TB, c *redis.Client, name string) {
	t.Helper()
	check.Eventually(t, "no subscription is left", func() bool { return subscribed(t, c, name) == 0 })
}

// onlyPassing allows no key of a lock but its token counter and, when Redis was slow, the latch of an unlock.
func onlyPassing(t testing.TB, client *redis.Client, name string) {
	t.Helper()
	bound := map[string]time.Duration{"redisson_lock_token": time.Hour, "redisson_unlock_latch": time.Minute}
	for _, key := range check.Value(client.Keys(t.Context(), "*"+name+"*").Result())(t) {
		kind, _, _ := strings.Cut(key, ":")
		if ttl := client.PTTL(t.Context(), key).Val(); ttl != -2 && (ttl <= 0 || ttl > bound[kind]) {
			t.Errorf("%s stays for %s", key, ttl)
		}
	}
}

func openDB(t testing.TB) *sql.DB {
	t.Helper()
	db := check.Value(sql.Open("mysql", testserver.Schema(t)))(t)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func table(t testing.TB, db *sql.DB) *lock.MySQLStore {
	t.Helper()
	store := lock.NewMySQLStore(db, lock.StatementTimeout(check.Deadline))
	check.Must(t, store.EnsureTable(t.Context()))
	return store
}

// fake stands before a store: it counts calls, slows them, or answers itself. (It does not hand locks over.)
type fake struct {
	lock.Store
	takes   time.Duration // before a call is carried out
	answers time.Duration // after that

	acquire func(context.Context, lock.Request) (lock.Grant, error)
	renew   func(context.Context, []lock.Request) []error
	release func(context.Context, lock.Request) (bool, error)
	watch   func(ctx context.Context, name string, wake func()) lock.Watch
	close   func() error

	acquired, renewed, released atomic.Int64
}

func newFake() *fake { return &fake{Store: lock.NewMemoryStore()} }

// empty may be used while nobody calls it: each call touches its counter first, and so sees the new store.
func (s *fake) empty() {
	s.Store = lock.NewMemoryStore()
	for _, counter := range []*atomic.Int64{&s.acquired, &s.renewed, &s.released} {
		counter.Add(0)
	}
}

func (s *fake) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	s.acquired.Add(1)
	return slowly(ctx, s, func() (lock.Grant, error) {
		if s.acquire != nil {
			return s.acquire(ctx, r)
		}
		return s.Store.Acquire(ctx, r)
	})
}

func slowly[A any](ctx context.Context, s *fake, call func() (A, error)) (answer A, err error) {
	if err := pass(ctx, s.takes); err != nil {
		return answer, err
	}
	said, err := call()
	if late := pass(ctx, s.answers); late != nil {
		return answer, late
	}
	return said, err
}

func (s *fake) Renew(ctx context.Context, rs []lock.Request) []error {
	s.renewed.Add(1)
	if s.renew != nil {
		return s.renew(ctx, rs)
	}
	return s.Store.Renew(ctx, rs)
}

func (s *fake) Release(ctx context.Context, r lock.Request) (bool, error) {
	s.released.Add(1)
	return slowly(ctx, s, func() (bool, error) {
		if s.release != nil {
			return s.release(ctx, r)
		}
		return s.Store.Release(ctx, r)
	})
}

func (s *fake) Watch(ctx context.Context, name string, wake func()) lock.Watch {
	if s.watch != nil {
		return s.watch(ctx, name, wake)
	}
	return s.Store.Watch(ctx, name, wake)
}

func (s *fake) Close() error {
	if s.close != nil {
		return s.close()
	}
	return s.Store.Close()
}

// calls is how often the store was asked, but for renewals.
func (s *fake) calls() int { return int(s.acquired.Load() + s.released.Load()) }

func (s *fake) free(t testing.TB, name string) bool {
	t.Helper()
	r := lock.Request{Name: name, Holder: "a look", Holds: 1, Lease: time.Minute}
	grant := check.Value(s.Store.Acquire(context.Background(), r))(t)
	if grant.State != lock.StateHeld {
		return false
	}
	check.Must(t, check.ErrorOf(s.Store.Release(context.Background(), lock.Request{Name: name, Holder: r.Holder})))
	return true
}

// silent is what a store says that was reached and does not answer: nothing, until the caller goes away.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", lock.ErrUnknown, context.Cause(ctx))
}

func pass(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", lock.ErrUnknown, context.Cause(ctx))
	}
}

// cut is a store that can be cut off: it carries nothing out then, and says nothing or as it is told.
type cut struct {
	*fake
	gone atomic.Bool
	says func(context.Context) error
}

func newCut() *cut {
	c := &cut{fake: newFake(), says: silent}
	c.acquire = func(ctx context.Context, r lock.Request) (lock.Grant, error) {
		if c.gone.Load() {
			return lock.Grant{}, c.says(ctx)
		}
		return c.Store.Acquire(ctx, r)
	}
	c.renew = func(ctx context.Context, rs []lock.Request) []error {
		if c.gone.Load() {
			return slices.Repeat([]error{c.says(ctx)}, len(rs))
		}
		return c.Store.Renew(ctx, rs)
	}
	c.release = func(ctx context.Context, r lock.Request) (bool, error) {
		if c.gone.Load() {
			return false, c.says(ctx)
		}
		return c.Store.Release(ctx, r)
	}
	return c
}

func (s *fake) locks(t testing.TB, opts ...lock.ClientOption) *lock.Client {
	t.Helper()
	return closing(t, lock.New(s, opts...))
}

// others is a client of the same locks that reaches the store whatever the fake does.
func (s *fake) others(t testing.TB) *lock.Client {
	t.Helper()
	return closing(t, lock.New(s.Store))
}

func closing(t testing.TB, locks *lock.Client) *lock.Client {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), check.Deadline)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Logf("close the locks: %v", err) // as it must, where a store is gone
		}
	})
	return locks
}

type attempt struct {
	lease *lock.Lease
	err   error
}

func begin(ctx context.Context, l lock.Locker, opts ...lock.Option) <-chan attempt {
	done := make(chan attempt, 1)
	go func() {
		lease, err := take(ctx, l, opts...)
		done <- attempt{lease, err}
	}()
	return done
}

func got(t testing.TB, what string, from <-chan attempt) *lock.Lease {
	t.Helper()
	a := check.Receive(t, what, from)
	if a.err != nil {
		t.Fatalf("%s: %v", what, a.err)
	}
	return a.lease
}

func take(ctx context.Context, l lock.Locker, opts ...lock.Option) (*lock.Lease, error) {
	return l.Lock(ctx, append([]lock.Option{lock.Fenced(), lock.Wait(check.Deadline)}, opts...)...)
}

func mustLock(t testing.TB, ctx context.Context, l lock.Locker, opts ...lock.Option) *lock.Lease { //nolint:revive // testing.TB comes first in helpers
	t.Helper()
	lease, err := take(ctx, l, opts...)
	if err != nil {
		t.Fatalf("lock %s: %v", l.Name(), err)
	}
	return lease
}

func mustUnlock(t testing.TB, lease *lock.Lease) {
	t.Helper()
	if err := lease.Unlock(); err != nil {
		t.Errorf("unlock %s: %v", lease.Name(), err)
	}
}

// wantLost waits until the context of a lease has ended, which has to be for its loss, and has Unlock say so.
func wantLost(t testing.TB, lease *lock.Lease) {
	t.Helper()
	check.Receive(t, "the end of "+lease.Name(), lease.Context().Done())
	check.Is(t, "the cause", context.Cause(lease.Context()), lock.ErrLost)
	check.Is(t, "the unlock of what was lost", lease.Unlock(), lock.ErrLost)
}

// use may be called in any goroutine.
func use(t testing.TB, l lock.Locker, work func(lease *lock.Lease)) {
	t.Helper()
	lease, err := take(t.Context(), l)
	if err != nil {
		t.Errorf("lock %s: %v", l.Name(), err)
		return
	}
	work(lease)
	mustUnlock(t, lease)
}

func cycle(t testing.TB, l lock.Locker) {
	t.Helper()
	mustUnlock(t, mustLock(t, t.Context(), l))
}

func wantHeld(t testing.TB, what string, lease *lock.Lease) {
	t.Helper()
	check.Is(t, what, context.Cause(lease.Context()), nil)
}

func wantBusy(t testing.TB, what string, l lock.Locker) {
	t.Helper()
	check.Is(t, what, check.ErrorOf(l.TryLock(t.Context())), lock.ErrHeld)
}

func wantLater(t testing.TB, token, before int64) {
	t.Helper()
	check.That(t, token > before, "token %d after %d", token, before)
}

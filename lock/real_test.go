package lock_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
	"seckill/lock/driver"
)

// calm is a lease that no test outlives. Where a lock is to be lost, a test takes it away on the server: a lease that
// has to be renewed in time would be lost by chance. What is about time is tried in a bubble.
const calm = time.Hour

// nameOf is a lock's name that no other test of any process uses.
func nameOf(t testing.TB) string {
	t.Helper()
	return "lock:" + strings.ReplaceAll(t.Name(), " ", "_") + ":" + rand.Text()[:8]
}

// patient are the settings of a client that is never too late for a busy machine.
func patient(t testing.TB, url string) *redis.Options {
	t.Helper()
	opt := check.Value(redis.ParseURL(url))(t)
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = check.Deadline, check.Deadline, check.Deadline, check.Deadline
	return opt
}

func connect(t testing.TB, opt *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// dial is a client as it should be.
func dial(t testing.TB, url string) *redis.Client {
	t.Helper()
	opt := patient(t, url)
	opt.ContextTimeoutEnabled = true
	return connect(t, opt)
}

// plain is a client as go-redis makes it: it does not mind the deadlines of contexts, and repeats commands. It does so
// for longer than a line is cut here.
func plain(t testing.TB, url string) *redis.Client {
	t.Helper()
	opt := patient(t, url)
	opt.MaxRetries, opt.MaxRetryBackoff = 100, 10*time.Millisecond
	return connect(t, opt)
}

func redisStore(client redis.UniversalClient, opts ...lock.RedisOption) driver.Store {
	return lock.NewRedisStore(client, append([]lock.RedisOption{lock.CallTimeout(check.Deadline)}, opts...)...)
}

func locksOn(t testing.TB, client redis.UniversalClient, opts ...lock.ClientOption) *lock.Client {
	t.Helper()
	return newLocks(t, redisStore(client), opts...)
}

// newLocks makes a client whose locks last and whose calls are never too late.
func newLocks(t testing.TB, store driver.Store, opts ...lock.ClientOption) *lock.Client {
	t.Helper()
	return closing(t, lock.New(store, append([]lock.ClientOption{lock.WatchdogLease(calm), lock.UnlockTimeout(check.Deadline)}, opts...)...))
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

// url is Redis at the other end of the line.
func (b bench) url() string { return "redis://" + b.line.Addr() + "/0" }

// held tells whether anybody has the lock.
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

// onlyPassing fails for every key of a lock but those that are known to stay for a while and then go: the token
// counter and, when Redis was slow to answer, the latch of an unlock.
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

// table is a lock table of the test's own.
func table(t testing.TB, db *sql.DB) *lock.MySQLStore {
	t.Helper()
	store := lock.NewMySQLStore(db, lock.StatementTimeout(check.Deadline))
	check.Must(t, store.EnsureTable(t.Context()))
	return store
}

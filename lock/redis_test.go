package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/lock"
)

func dial(t testing.TB, url string) *redis.Client {
	t.Helper()
	opt, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	opt.ContextTimeoutEnabled = true
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func locksOn(t testing.TB, client redis.UniversalClient, opts ...lock.ClientOption) *lock.Client {
	t.Helper()
	return newLocks(t, lock.NewRedisStore(client), opts...)
}

func newLocks(t testing.TB, store lock.Store, opts ...lock.ClientOption) *lock.Client {
	t.Helper()
	locks := lock.New(store, opts...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			// As it must, where a test ends with a server that is down.
			t.Logf("close the locks: %v", err)
		}
	})
	return locks
}

// eventually waits for a condition; it is the only way tests here wait for time.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			if ok() { // both have come while the machine stood still
				return
			}
			t.Fatalf("not within %s: %s", within, what)
		case <-tick.C:
		}
	}
}

func TestRedisLayout(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	for name, client := range map[string]*redis.Client{
		"redis":     dial(t, testserver.Redis(t).URL()),
		"miniredis": dial(t, "redis://"+mini.Addr()),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			locks := locksOn(t, client, lock.PollEvery(time.Hour), lock.ProbeEvery(time.Hour)) // a waiter is told of an unlock
			began := time.Now()
			lease, err := locks.Mutex("lock:order:42").Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			inner, err := locks.Mutex("lock:order:42").Lock(lease.Context())
			if err != nil {
				t.Fatal(err)
			}
			if inner.Token() != lease.Token() || lease.Token() == 0 {
				t.Errorf("tokens %d, %d", lease.Token(), inner.Token())
			}
			hash := client.HGetAll(ctx, "lock:order:42").Val()
			if len(hash) != 1 {
				t.Fatalf("hash %v", hash)
			}
			for k, v := range hash {
				if v != "2" || len(k) < 38 {
					t.Errorf("field %s = %s", k, v)
				}
			}
			if _, err := locks.Mutex("lock:order:42").TryLock(lock.Detach(lease.Context())); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("a detached owner got %v", err)
			}
			if err := inner.Unlock(); err != nil {
				t.Error(err)
			}
			if ttl := client.PTTL(ctx, "lock:order:42").Val(); ttl < lock.DefaultLease-time.Millisecond-time.Since(began) || ttl > lock.DefaultLease {
				t.Errorf("ttl %s, %s after the beginning", ttl, time.Since(began))
			}

			got := make(chan error, 1)
			go func() {
				l, err := locks.Mutex("lock:order:42").Lock(ctx, lock.Wait(5*time.Second))
				if err == nil {
					if l.Token() <= lease.Token() {
						err = errors.New("the token did not grow")
					} else {
						err = l.Unlock()
					}
				}
				got <- err
			}()
			eventually(t, 5*time.Second, "a subscription", func() bool {
				return len(client.PubSubChannels(ctx, "*").Val()) == 1
			})
			if ch := client.PubSubChannels(ctx, "*").Val(); ch[0] != "redisson_lock__channel:{lock:order:42}" {
				t.Errorf("channels %v", ch)
			}
			if err := lease.Unlock(); err != nil {
				t.Error(err)
			}
			if err := <-got; err != nil {
				t.Error(err)
			}
			if err := lease.Unlock(); !errors.Is(err, lock.ErrNotHeld) {
				t.Errorf("second unlock: %v", err)
			}
			eventually(t, 5*time.Second, "no subscription left", func() bool {
				return len(client.PubSubChannels(ctx, "*").Val()) == 0
			})
			onlyPassing(t, client)
		})
	}
}

func TestExclusion(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.Redis(t).URL())
	var locks []*lock.Client
	for range 3 {
		locks = append(locks, locksOn(t, client))
	}
	var wg sync.WaitGroup
	n, last := 0, int64(0) // unguarded but for the lock: the race detector watches
	for i := range 30 {
		wg.Go(func() {
			for range 20 {
				lease, err := locks[i%3].Mutex("x").Lock(t.Context(), lock.Wait(20*time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				n++
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				if err := lease.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n != 600 {
		t.Errorf("%d of 600", n)
	}
}

// onlyPassing fails for every key but those that are known to stay for a while
// and then go: the token counter and, when Redis was slow to answer, the latch
// of an unlock.
func onlyPassing(t testing.TB, client *redis.Client) {
	t.Helper()
	bound := map[string]time.Duration{"redisson_lock_token": time.Hour, "redisson_unlock_latch": time.Minute}
	for _, key := range client.Keys(context.Background(), "*").Val() {
		kind, _, _ := strings.Cut(key, ":")
		if ttl := client.PTTL(context.Background(), key).Val(); ttl != -2 && (ttl <= 0 || ttl > bound[kind]) {
			t.Errorf("%s stays for %s", key, ttl)
		}
	}
}

// commands counts the requests Redis has had from clients: script calls,
// subscriptions and deletions, without what the scripts call themselves.
func commands(t testing.TB, client *redis.Client) int {
	t.Helper()
	info := client.Info(context.Background(), "commandstats").Val()
	sum := 0
	for line := range strings.Lines(info) {
		for _, name := range []string{"evalsha", "eval", "subscribe", "unsubscribe", "unlink", "ping"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+name+":calls="); ok {
				n, _, _ := strings.Cut(rest, ",")
				v, err := strconv.Atoi(n)
				if err != nil {
					t.Fatal(err)
				}
				sum += v
			}
		}
	}
	return sum
}

// Redis refuses the login of new connections: no call gets a lock, each hears why,
// also those that share a pipeline.
func TestARefusedLoginHoldsNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	direct := dial(t, s.URL())
	if err := direct.Do(t.Context(), "acl", "setuser", "shop", "on", ">right", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	locks := locksOn(t, dial(t, "redis://shop:wrong@"+s.Addr()+"/0"))
	var callers sync.WaitGroup
	for i := range 50 {
		callers.Go(func() {
			lease, err := locks.Mutex(fmt.Sprint("k", i)).TryLock(t.Context())
			if lease != nil || !strings.Contains(fmt.Sprint(err), "WRONGPASS") {
				t.Errorf("lease %v, error %v", lease, err)
			}
		})
	}
	callers.Wait()
	if n := direct.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys", n)
	}
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// server is a Redis without persistence, so that no disk is measured, and an observer of it.
type server struct {
	*testserver.Server
	*redis.Client
}

func startRedis(b *testing.B, args ...string) server {
	b.Helper()
	s := testserver.Redis(b, append([]string{"--save", "", "--appendonly", "no"}, args...)...)
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	b.Cleanup(func() { client.Close() })
	return server{s, client}
}

// commands is how many the server has carried out, those inside scripts included.
func (s server) commands(b *testing.B) float64 {
	b.Helper()
	_, text, _ := strings.Cut(s.Info(b.Context(), "stats").Val(), "total_commands_processed:")
	text, _, _ = strings.Cut(text, "\r")
	return check.Value(strconv.ParseFloat(text, 64))(b)
}

// What an acquisition with its release costs, by peer: of a lock that nobody else wants, and of one that all want, in
// one process and as many as four have it (each with a client of its own).
func BenchmarkLock(b *testing.B) {
	s := startRedis(b)
	for _, load := range []struct {
		name                string
		clients, goroutines int
		one                 bool          // lock for all
		hold                time.Duration // of each
	}{
		{"solo", 1, 1, false, 0},
		{"keys", 1, 64, false, 0},
		{"hot", 1, 64, true, time.Millisecond},
		{"processes", 4, 64, true, time.Millisecond},
	} {
		for _, p := range peers() {
			if load.one && p.name == "none" {
				continue
			}
			b.Run("load="+load.name+"/peer="+p.name, func(b *testing.B) {
				contend(b, s, p, load.clients, load.goroutines, load.one, load.hold)
			})
		}
	}
}

// contend lets goroutines take and release locks until there were b.N acquisitions.
func contend(b *testing.B, s server, p peer, clients, goroutines int, one bool, hold time.Duration) {
	b.Helper()
	opened := make([]acquire, clients)
	for i := range opened {
		opened[i] = p.open(b, s.Addr(), goroutines/clients)
		release, err := opened[i](b.Context(), "warm") // connected, and the scripts are known
		check.Must(b, err)
		check.Must(b, release())
	}
	ctx, over := context.WithCancel(b.Context())
	defer over()
	var done, longest atomic.Int64
	var all sync.WaitGroup
	cpu, redisCPU, commands := testserver.CPU(b, os.Getpid()), testserver.CPU(b, s.PID()), s.commands(b)
	b.ResetTimer()
	for g := range goroutines {
		key := b.Name() + strconv.Itoa(b.N)
		if !one {
			key += ":" + strconv.Itoa(g)
		}
		all.Go(func() {
			for ctx.Err() == nil {
				asked := time.Now()
				release, err := opened[g%clients](ctx, key)
				// A waiter at the end counts too: perhaps nobody would ever wake it.
				waited := int64(time.Since(asked))
				for was := longest.Load(); waited > was && !longest.CompareAndSwap(was, waited); was = longest.Load() {
				}
				if err != nil {
					if ctx.Err() == nil {
						b.Errorf("%s: %v", p.name, err)
					}
					return
				}
				if hold > 0 {
					<-time.After(hold)
				}
				enough := done.Add(1) >= int64(b.N)
				if err := release(); err != nil && ctx.Err() == nil {
					b.Errorf("%s: %v", p.name, err)
				}
				if enough {
					over()
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	n := float64(done.Load())
	b.ReportMetric(float64((testserver.CPU(b, os.Getpid())-cpu).Microseconds())/n, "client-µs/op")
	b.ReportMetric(float64((testserver.CPU(b, s.PID())-redisCPU).Microseconds())/n, "redis-µs/op")
	b.ReportMetric((s.commands(b)-commands)/n, "commands/op")
	if one { // the fair share of the wait is what everybody waits who are served in turn
		share := float64(b.Elapsed()) / n * float64(goroutines)
		b.ReportMetric(float64(longest.Load())/share, "longest-wait/share")
	}
}

// How long after a release by one client the waiter of another one has the lock, beside what it takes to get a free
// one after the same idle time: a handover takes two requests, the release with its message and the next holder's.
func BenchmarkHandover(b *testing.B) {
	s := startRedis(b)
	for _, p := range peers()[:5] {
		b.Run("peer="+p.name, func(b *testing.B) {
			holder, waiter := p.open(b, s.Addr(), 1), p.open(b, s.Addr(), 1)
			var handovers, free []time.Duration
			for i := range b.N {
				key := fmt.Sprint("handover:", p.name, b.N, ":", i)
				release := check.Value(holder(b.Context(), key))(b)
				taken := make(chan time.Time)
				go func() {
					release, err := waiter(b.Context(), key)
					at := time.Now()
					if err == nil {
						err = release()
					}
					if err != nil {
						b.Error(err)
					}
					taken <- at
				}()
				// By then the waiter waits, whatever way it has of waiting; at no fixed phase of its intervals.
				idle := 15*time.Millisecond + time.Duration(i%10)*time.Millisecond
				<-time.After(idle)
				start := time.Now()
				check.Must(b, release())
				handovers = append(handovers, (<-taken).Sub(start))
				<-time.After(idle)
				start = time.Now()
				release = check.Value(holder(b.Context(), key+"free"))(b)
				free = append(free, time.Since(start))
				check.Must(b, release())
			}
			b.ReportMetric(0, "ns/op")
			for unit, took := range map[string][]time.Duration{"handover-µs": handovers, "free-µs": free} {
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), unit)
			}
		})
	}
}

// The price of an acquisition that every replica has confirmed.
func BenchmarkSynced(b *testing.B) {
	for replicas := 1; replicas <= 2; replicas++ {
		primary := startRedis(b, "--repl-diskless-sync-delay", "0")
		for range replicas {
			startRedis(b, "--replicaof", "127.0.0.1", strconv.Itoa(primary.Port()))
		}
		check.Eventually(b, "the replicas follow", func() bool {
			return strings.Count(primary.Info(b.Context(), "replication").Val(), "state=online") == replicas
		})
		for _, goroutines := range []int{1, 64} {
			for _, p := range []peer{
				ours("no", lock.WithoutTokens()),
				ours("yes", lock.WithoutTokens(), lock.Synced(lock.AllReplicas)),
			} {
				b.Run(fmt.Sprintf("replicas=%d/goroutines=%d/synced=%s", replicas, goroutines, p.name),
					func(b *testing.B) {
						contend(b, primary, p, 1, goroutines, false, 0)
					})
			}
		}
	}
}

const (
	// lease is how long a lock lasts that is not renewed: long enough that none ends within a workload.
	lease = 30 * time.Second
	// pause is between redislock's tries: short against the waits of 64 goroutines, and not yet a flood of requests.
	pause = 10 * time.Millisecond
	// tryNextAfter bounds an attempt of rueidislock. With the default of 20 ms an attempt on a busy machine ends before
	// its answer comes, and its caller then waits for a message about the key that it took itself, for ever.
	tryNextAfter = 2 * time.Second
)

// acquire waits for a lock until ctx ends.
type acquire func(ctx context.Context, key string) (release func() error, err error)

// peer is a contestant: open makes one client of one Redis, as a process has it, for so many goroutines.
type peer struct {
	name string
	open func(b *testing.B, addr string, goroutines int) acquire
}

// ours is the lock of this repository, with options of its store.
func ours(name string, opts ...lock.RedisOption) peer {
	return peer{name, func(b *testing.B, addr string, _ int) acquire {
		b.Helper()
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		locks := lock.New(lock.NewRedisStore(client, opts...))
		b.Cleanup(func() { check.Must(b, errors.Join(locks.Close(context.Background()), client.Close())) })
		return func(ctx context.Context, key string) (func() error, error) {
			held, err := locks.Mutex(key).Lock(ctx)
			if err != nil {
				return nil, err
			}
			return held.Unlock, nil
		}
	}}
}

// peers are the contestants. The first is what the service uses.
func peers() []peer {
	return []peer{
		ours("tokenless", lock.WithoutTokens()),
		ours("tokens"),
		{"redsync", func(b *testing.B, addr string, goroutines int) acquire {
			b.Helper()
			locks := redsync.New(redsyncredis.NewPool(pooled(b, addr, goroutines)))
			return func(ctx context.Context, key string) (func() error, error) {
				m := locks.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt))
				return func() error { return check.ErrorOf(m.UnlockContext(context.WithoutCancel(ctx))) },
					m.LockContext(ctx)
			}
		}},
		{"redislock", func(b *testing.B, addr string, goroutines int) acquire {
			b.Helper()
			locks := redislock.New(pooled(b, addr, goroutines))
			return func(ctx context.Context, key string) (func() error, error) {
				m, err := locks.Obtain(ctx, key, lease,
					&redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)})
				return func() error { return m.Release(context.WithoutCancel(ctx)) }, err
			}
		}},
		{"rueidislock", func(b *testing.B, addr string, _ int) acquire {
			b.Helper()
			locks := check.Value(rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
				KeyValidity:  lease, KeyMajority: 1, NoLoopTracking: true, TryNextAfter: tryNextAfter,
			}))(b)
			b.Cleanup(locks.Close)
			return func(ctx context.Context, key string) (func() error, error) {
				_, cancel, err := locks.WithContext(ctx, key)
				return func() error { cancel(); return nil }, err
			}
		}},
		// What a round trip costs: SET NX PX and DEL are no lock, because anybody's DEL frees it.
		{"none", func(b *testing.B, addr string, goroutines int) acquire {
			b.Helper()
			client := pooled(b, addr, goroutines)
			return func(ctx context.Context, key string) (func() error, error) {
				err := client.SetArgs(ctx, key, "x", redis.SetArgs{Mode: "NX", TTL: lease}).Err()
				return func() error { return client.Del(ctx, key).Err() }, err
			}
		}},
	}
}

// pooled is for those who take a connection for each call.
func pooled(b *testing.B, addr string, goroutines int) *redis.Client {
	b.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: goroutines, MinIdleConns: goroutines})
	b.Cleanup(func() { _ = client.Close() })
	return client
}

package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
				waited := int64(time.Since(asked)) // also of who is waiting at the end: perhaps nobody would ever wake it
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
				b.Run(fmt.Sprintf("replicas=%d/goroutines=%d/synced=%s", replicas, goroutines, p.name), func(b *testing.B) {
					contend(b, primary, p, 1, goroutines, false, 0)
				})
			}
		}
	}
}

package lock_test

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// BenchmarkPair is one acquisition and release of a lock nobody else wants, with tokens and, as the locks of the
// service's users are, without.
func BenchmarkPair(b *testing.B) {
	for _, goroutines := range []int{1, 8, 64} {
		b.Run(fmt.Sprint("tokens/", goroutines), func(b *testing.B) { pairs(b, goroutines) })
		b.Run(fmt.Sprint("none/", goroutines), func(b *testing.B) { pairs(b, goroutines, lock.WithoutTokens()) })
	}
}

func pairs(b *testing.B, goroutines int, opts ...lock.RedisOption) {
	b.Helper()
	client := dial(b, benchURL(b))
	takeEach(b, newLocks(b, lock.NewRedisStore(client, opts...)), goroutines)
}

// takeEach takes and gives back b.N locks, each goroutine its own.
func takeEach(b *testing.B, locks *lock.Client, goroutines int) {
	b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for g := range goroutines {
		wg.Go(func() {
			m := locks.Mutex(fmt.Sprint("bench:", g))
			for next.Add(1) <= int64(b.N) {
				lease, err := m.Lock(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				if err := lease.Unlock(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

// BenchmarkTable is one acquisition and release of a lock nobody else wants, in a table of a database that is as
// durable as in production: MariaDB, or what TESTSERVER_MYSQL names. What the server flushes and computes for it says
// more than the rate on a machine that does other work.
func BenchmarkTable(b *testing.B) {
	for _, goroutines := range []int{1, 16} {
		b.Run(strconv.Itoa(goroutines), func(b *testing.B) {
			server := testserver.MariaDB(b, strings.Fields(os.Getenv("BENCH_DATABASE"))...)
			db := check.Value(sql.Open("mysql", server.AdminDSN(testserver.DefaultSchema)+"?interpolateParams=true"))(b)
			b.Cleanup(func() { _ = db.Close() })
			db.SetMaxIdleConns(goroutines)
			store := lock.NewMySQLStore(db)
			check.Must(b, store.EnsureTable(b.Context()))
			locks := newLocks(b, store)
			flushed := func() int64 { return testserver.Status(b, db, "Innodb_data_fsyncs") }
			asked := func() int64 { return testserver.Status(b, db, "Questions") }
			fsyncs, statements, cpu := flushed(), asked(), testserver.CPU(b, server.PID())
			takeEach(b, locks, goroutines)
			pairs := float64(b.N)
			b.ReportMetric(float64(flushed()-fsyncs)/pairs, "fsyncs/op")
			b.ReportMetric(float64(asked()-statements)/pairs, "statements/op")
			b.ReportMetric((testserver.CPU(b, server.PID())-cpu).Seconds()*1e6/pairs, "database-µs/op")
		})
	}
}

// BenchmarkOneKey is 64 goroutines on one lock, held for 1 ms.
func BenchmarkOneKey(b *testing.B) {
	const goroutines = 64
	run := func(b *testing.B, lock func() func()) {
		b.Helper()
		waits := make([][]time.Duration, goroutines)
		var next atomic.Int64
		var wg sync.WaitGroup
		b.ResetTimer()
		for g := range goroutines {
			wg.Go(func() {
				for next.Add(1) <= int64(b.N) {
					start := time.Now()
					unlock := lock()
					waits[g] = append(waits[g], time.Since(start))
					time.Sleep(time.Millisecond) // real time: the work
					unlock()
				}
			})
		}
		wg.Wait()
		all := slices.Sorted(slices.Values(slices.Concat(waits...)))
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "median-ms")
		b.ReportMetric(float64(all[len(all)-1].Microseconds())/1000, "longest-ms")
	}
	b.Run("sync.Mutex", func(b *testing.B) {
		var mu sync.Mutex
		run(b, func() func() { mu.Lock(); return mu.Unlock })
	})
	b.Run("redis", func(b *testing.B) {
		client := dial(b, benchURL(b))
		requests := &gate{}
		client.AddHook(requests)
		m := locksOn(b, client).Mutex("bench:one")
		run(b, func() func() {
			lease, err := m.Lock(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			return func() { _ = lease.Unlock() }
		})
		b.ReportMetric(float64(requests.count())/float64(b.N), "requests/op")
	})
	_ = lock.ErrLost
}

// benchURL is a Redis without persistence, as the peers are measured on.
func benchURL(b *testing.B) string {
	b.Helper()
	return testserver.Redis(b, "--appendonly", "no").URL()
}

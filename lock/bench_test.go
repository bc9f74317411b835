package lock_test

import (
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

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
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for g := range goroutines {
				wg.Go(func() {
					for next.Add(1) <= int64(b.N) {
						cycle(b, locks.Mutex(fmt.Sprint("bench:", g)))
					}
				})
			}
			wg.Wait()
			pairs := float64(b.N)
			b.ReportMetric(float64(flushed()-fsyncs)/pairs, "fsyncs/op")
			b.ReportMetric(float64(asked()-statements)/pairs, "statements/op")
			b.ReportMetric((testserver.CPU(b, server.PID())-cpu).Seconds()*1e6/pairs, "database-µs/op")
		})
	}
}

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

// The cost of an uncontended lock in a durable table: MariaDB, or what TESTSERVER_MYSQL names. The server's own counts
// say more than the rate on a busy machine.
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

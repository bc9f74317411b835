package repository_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/sqldb"
)

// BenchmarkCreateOrders measures how many orders a second reach one voucher, by
// strategy, batch size and writers, on a MariaDB that flushes every commit:
//
//	go test ./repository -run '^$' -bench CreateOrders -benchtime 2s
func BenchmarkCreateOrders(b *testing.B) {
	for _, s := range stores() {
		for _, shape := range []struct{ batch, writers int }{{1, 1}, {1, 16}, {16, 4}, {100, 2}, {500, 2}} {
			b.Run(fmt.Sprintf("%s/batch=%d/writers=%d", s, shape.batch, shape.writers), func(b *testing.B) {
				options := sqldb.Options{SQLiteFile: b.TempDir() + "/bench.db"}
				if s.dialect == "mysql" {
					server := testserver.MariaDB(b)
					options = sqldb.Options{DSN: server.DSN("bench")}
					createSchema(b, server, "bench")
				}
				f := openFixture(b, s, options)
				check.Must(b, f.db.Migrate(b.Context()))
				v := f.onSale(b, model.MaxAmount)
				var next atomic.Int64
				b.ResetTimer()
				check.Volley(shape.writers, func(int) {
					for next.Add(1) <= int64(b.N) {
						batch := make([]model.Order, shape.batch)
						for i := range batch {
							batch[i] = order(b, v.ID, newID(b))
						}
						if _, err := f.orders.CreateOrders(b.Context(), batch); err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N*shape.batch)/b.Elapsed().Seconds(), "orders/s")
			})
		}
	}
}

// BenchmarkNewOrders measures what it saves not to look first whether new orders are there already, and what the index
// that finds overdue orders costs: the processor time of the service and of MariaDB for one order.
//
//	go test ./repository -run '^$' -bench NewOrders -benchtime 300x
func BenchmarkNewOrders(b *testing.B) {
	for _, way := range []string{"as it is", "look first", "no index of overdue orders"} {
		b.Run(way, func(b *testing.B) {
			const size = 100
			f, server := benchFixture(b)
			v := f.onSale(b, model.MaxAmount)
			switch way {
			case "look first":
				f.orders.LookFirst()
			case "no index of overdue orders":
				f.exec(b, "ALTER TABLE orders DROP KEY orders_due")
			}
			ours, theirs := testserver.CPU(b, os.Getpid()), testserver.CPU(b, server.PID())
			for b.Loop() {
				batch := make([]model.Order, size)
				for i := range batch {
					batch[i] = order(b, v.ID, newID(b))
				}
				if _, err := f.orders.CreateOrders(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			orders := float64(b.N * size)
			b.ReportMetric((testserver.CPU(b, os.Getpid())-ours).Seconds()*1e6/orders, "µs/order")
			b.ReportMetric((testserver.CPU(b, server.PID())-theirs).Seconds()*1e6/orders, "mariadb-µs/order")
		})
	}
}

func createSchema(b *testing.B, server *testserver.Server, name string) {
	b.Helper()
	db := check.Value(sqldb.Open(b.Context(), sqldb.Options{DSN: server.AdminDSN("mysql")}))(b)
	check.Must(b, check.ErrorOf(db.SQL().ExecContext(b.Context(), "CREATE DATABASE IF NOT EXISTS "+name)))
	check.Must(b, db.Close())
}

// benchFixture is a migrated database in a MariaDB of its own, of the sizes and the durability of production.
func benchFixture(b *testing.B) (*fixture, *testserver.Server) {
	b.Helper()
	server := testserver.MariaDB(b, "--innodb-buffer-pool-size=512M", "--innodb-log-file-size=256M")
	f := openFixture(b, stores()[0], sqldb.Options{DSN: server.DSN(testserver.DefaultSchema)})
	check.Must(b, f.db.Migrate(b.Context()))
	return f, server
}

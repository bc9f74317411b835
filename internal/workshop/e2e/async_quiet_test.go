package e2e_test

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// BenchmarkQuietVouchers tells which part of a core vouchers that nobody buys cost in the database, Redis and the process
// together, whether they are on sale or will be: 2 % of a core for 10,000 of them are much. QUIET_VOUCHERS is how many
// there are. The benchmark runs once, because it measures for a time of its own.
func BenchmarkQuietVouchers(b *testing.B) {
	const (
		look  = 10 * time.Second
		sweep = 6 * time.Second // longer than a worker's pause between two sweeps
	)
	own, s := asyncOnOwnServers(b)
	p := launch(b, s)
	db := behind(b, s)
	query := func(statement string) {
		b.Helper()
		check.Must(b, check.ErrorOf(db.ExecContext(b.Context(), statement)))
	}
	computed := func() (sum time.Duration) {
		for _, pid := range []int{own.redis.PID(), own.database.PID(), p.cmd.Process.Pid} {
			sum += testserver.CPU(b, pid)
		}
		return sum
	}
	measure := func(unit string) {
		time.Sleep(sweep) // real time: what was loaded comes to rest
		before := computed()
		time.Sleep(look) // real time: what is computed meanwhile is measured
		b.ReportMetric((computed()-before).Seconds()/look.Seconds(), unit)
	}
	p.onSale(b, 1)
	measure("cores-alone")
	query(`INSERT INTO vouchers (id, title, description, price, face_value, currency, stock, remaining, begin_at, end_at, state, version, created_at)
		SELECT CONCAT('quiet', seq), 'quiet', '', 1000, 2000, 'CNY', 100, 100, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 30 DAY,
			'published', 1, UTC_TIMESTAMP(6) FROM ` + testserver.Numbers(1, check.Count(b, "QUIET_VOUCHERS", 10_000, 10_000)))
	check.Patiently(b, "every voucher is loaded", func() bool {
		var closed int
		check.Must(b, db.QueryRowContext(b.Context(), "SELECT COUNT(*) FROM vouchers WHERE copy_epoch = 0 OR copy_open_epoch <> copy_epoch").Scan(&closed))
		return closed == 0
	})
	for unit, begins := range map[string]string{"cores-on-sale": "0 HOUR", "cores-upcoming": "24 HOUR"} {
		query("UPDATE vouchers SET begin_at = created_at + INTERVAL " + begins + " WHERE title = 'quiet'")
		measure(unit)
	}
}

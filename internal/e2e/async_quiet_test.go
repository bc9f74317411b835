package e2e_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"seckill/internal/testserver"
)

const (
	// quietCost is what quiet vouchers may cost at most, as a part of one core, in
	// the database, Redis and the process together.
	quietCost = 0.02
	// quietLook is how long is looked at each of the cases in the short version; a
	// clock tick is a thousandth of it. The long one takes so many times as long.
	quietLook = 10 * time.Second
	quietLong = 6
	// sweep is longer than a worker's pause between two sweeps.
	sweep = 6 * time.Second
)

// What nobody buys costs next to nothing, whether it is on sale or will be. Long
// version, with 10,000 vouchers: make quiet. It counts what its own processes
// compute, which other tests do not change much: it need not wait for them.
func TestQuietVouchersCostNextToNothing(t *testing.T) {
	t.Parallel()
	vouchers := count(t, "QUIET_VOUCHERS", 1000)
	look := quietLook
	if vouchers >= 10_000 {
		look *= quietLong
	}
	own, s := asyncOnOwnServers(t)
	p := launch(t, s)
	db, err := sql.Open("mysql", s["SECKILL_DATABASE_DSN"])
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	query := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	measure := func(what string) (cores float64) {
		t.Helper()
		before := [...]time.Duration{testserver.CPU(t, own.redis.PID()), testserver.CPU(t, own.database.PID()), testserver.CPU(t, p.cmd.Process.Pid)}
		<-time.After(look)
		var each [3]float64
		for i, pid := range []int{own.redis.PID(), own.database.PID(), p.cmd.Process.Pid} {
			each[i] = (testserver.CPU(t, pid) - before[i]).Seconds() / look.Seconds()
			cores += each[i]
		}
		t.Logf("%-30s Redis %.4f, MariaDB %.4f, seckill %.4f: %.4f cores", what, each[0], each[1], each[2], cores)
		return cores
	}

	p.onSale(t, 1)
	alone := measure("1 voucher")
	query(`INSERT INTO vouchers (id, title, description, price, face_value, currency, stock, remaining, begin_at, end_at, state, version, created_at)
		SELECT CONCAT('quiet', seq), 'quiet', '', 1000, 2000, 'CNY', 100, 100, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 30 DAY,
			'published', 1, UTC_TIMESTAMP(6) FROM ` + testserver.Numbers(1, vouchers))
	until(t, 3*time.Minute, "every voucher is loaded", func() bool {
		<-time.After(100 * time.Millisecond)
		var closed int
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM vouchers WHERE copy_epoch = 0 OR copy_open_epoch <> copy_epoch").Scan(&closed); err != nil {
			t.Fatal(err)
		}
		return closed == 0
	})
	<-time.After(2 * time.Second) // the servers have written what was loaded
	phases := []struct {
		name, begins string
		cores        float64
	}{{name: "on sale", begins: "0 HOUR"}, {name: "upcoming", begins: "24 HOUR"}}
	for i, phase := range phases {
		query("UPDATE vouchers SET begin_at = created_at + INTERVAL " + phase.begins + " WHERE title = 'quiet'")
		<-time.After(sweep)
		phases[i].cores = measure(fmt.Sprintf("and %d that are %s", vouchers, phase.name))
	}
	// Other tests make everything dearer, and not all the time. So what there is without these vouchers is measured once more
	// after them, and the larger counts.
	query("UPDATE vouchers SET state = 'archived' WHERE title = 'quiet'")
	<-time.After(sweep)
	alone = max(alone, measure("1 voucher again"))
	for _, phase := range phases {
		cost := phase.cores - alone
		t.Logf("%d vouchers that are %s cost %.2f %% of a core", vouchers, phase.name, 100*cost)
		if cost > quietCost {
			t.Errorf("that is more than %.0f %%", 100*quietCost)
		}
	}
}

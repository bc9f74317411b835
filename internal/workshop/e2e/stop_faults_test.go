//go:build faults

//part:databases

package e2e_test

import (
	"database/sql"
	"strconv"
	"syscall"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// TestAQuietInstanceStopsWell: the database has closed the connections of an instance that nobody has asked for a while.
func TestAQuietInstanceStopsWell(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	s := onServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema)})
	operate(t, s, "", "migrate")
	admin := check.Value(sql.Open("mysql", database.AdminDSN("")))(t)
	defer admin.Close()
	check.Must(t, check.ErrorOf(admin.ExecContext(t.Context(), "SET GLOBAL wait_timeout = 1")))
	p := launch(t, s)
	voucher := p.onSale(t, 50)
	check.Volley(50, func(n int) { _, _ = p.Place(t, voucher.ID, p.user(n)) }) // over as many connections as there are
	check.Eventually(t, "the database closes connections", func() bool {
		var name, count string
		check.Must(t, admin.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Aborted_clients'").Scan(&name, &count))
		return check.Value(strconv.Atoi(count))(t) > 3
	})
	check.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.ends(t)
}

// TestAStopBesideDeadServers: what cannot be closed well any more is no failure of the stop.
func TestAStopBesideDeadServers(t *testing.T) {
	t.Parallel()
	database, redis, nats := testserver.MariaDB(t), testserver.Redis(t), testserver.NATS(t)
	for name, dead := range map[string][]*testserver.Server{
		"database": {database}, "Redis": {redis}, "NATS": {nats}, "all": {database, redis, nats},
	} {
		for _, server := range []*testserver.Server{database, redis, nats} {
			server.Start()
		}
		p := launch(t, onServers(t).with(settings{
			"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema), "SECKILL_REDIS_URL": redis.URL(),
			"SECKILL_ORDER_MODE": "async", "SECKILL_NATS_URL": nats.URL(),
		}))
		voucher := p.onSale(t, 20)
		check.Volley(20, func(n int) { _, _ = p.Place(t, voucher.ID, p.user(n)) })
		for _, server := range dead {
			server.Kill()
		}
		check.Must(t, p.cmd.Process.Signal(syscall.SIGTERM))
		check.Receive(t, "the end of the program", p.exited)
		check.Equal(t, "the exit code beside dead "+name, p.cmd.ProcessState.ExitCode(), 0)
	}
}

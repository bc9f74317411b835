//go:build faults

//part:databases

package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
)

// TestReadinessTellsTheTruthOfTheDatabase: in sync nothing is sold by one that takes no writes or does not answer, and
// readiness says so. Async sells on for a while, and is ready as long as it does.
func TestReadinessTellsTheTruthOfTheDatabase(t *testing.T) {
	t.Parallel()
	database := testserver.MariaDB(t)
	s := asyncOnServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema), "SECKILL_BACKLOG_MAX_AGE": "30s"})
	async := launch(t, s)
	voucher := async.onSale(t, 1000)
	other := testserver.MariaDB(t)
	sync := launch(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": other.DSN(testserver.DefaultSchema)}))
	line := func(p *process) (status int, said string) {
		got := check.Value(p.Get("/readyz"))(t)
		return got.Status, remote.Decode[struct{ Checks map[string]string }](t, got).Checks["database"]
	}
	for n, away := range absences(other) {
		away.begin(t)
		check.Patiently(t, away.name+": sync is not ready", func() bool {
			status, said := line(sync)
			return status == http.StatusServiceUnavailable && said != "ok"
		})
		if _, said := line(sync); away.name == "read-only" && said != "The database takes no writes." {
			t.Errorf("%s: %s", away.name, said)
		}
		away.end(t)
		sync.ready(t)
		sync.buys(t, sync.onSale(t, 1).ID, sync.user(n))
	}

	absences(database)[2].begin(t)
	check.Patiently(t, "async tells that the database is away", func() bool {
		status, said := line(async)
		return status == http.StatusOK && strings.HasPrefix(said, "away for ")
	})
	promised := async.buysAll(t, voucher.ID, []string{async.user(1)})
	async.unready(t)
	absences(database)[2].end(t)
	check.Patiently(t, "async is ready", func() bool {
		status, said := line(async)
		return status == http.StatusOK && said == "ok"
	})
	async.conserved(t, voucher.ID, promised)
}

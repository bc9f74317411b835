package e2e_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/repository"
)

func TestInstanceThatDoesNotMigrateIsReadyOnceSomebodyHas(t *testing.T) {
	t.Parallel()
	s := onServers(t).with(settings{"SECKILL_MIGRATE": "off"})
	a := start(t, s)
	got, err := send(a.client, http.MethodGet, a.url+"/readyz", "", nil)
	if err != nil || got.status != http.StatusServiceUnavailable || !strings.Contains(string(got.body), "seckill migrate") {
		t.Fatalf("on an empty schema: %d %s, %v", got.status, got.body, err)
	}
	db, err := repository.Open(t.Context(), repository.Options{DSN: s["SECKILL_DATABASE_DSN"], Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, 10*time.Second, "it is ready", func() bool { return a.status(t, "/readyz") == http.StatusOK })
	a.onSale(t, 1)
}

// TestReadinessTellsTheTruthOfTheDatabase: in sync nothing is sold by one that takes no writes or does not answer, and
// readiness says so within a second. Async sells on for a while, and is ready as long as it does.
func TestReadinessTellsTheTruthOfTheDatabase(t *testing.T) {
	t.Parallel()
	const maxAge = 4 * time.Second
	database := testserver.MariaDB(t)
	s := asyncOnServers(t).with(settings{"SECKILL_DATABASE_DSN": database.DSN(testserver.DefaultSchema), "SECKILL_BACKLOG_MAX_AGE": maxAge.String()})
	async := launch(t, s)
	voucher := async.onSale(t, 1000)
	other := testserver.MariaDB(t)
	sync := launch(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": other.DSN(testserver.DefaultSchema)}))
	line := func(p *process) (status int, said string) {
		testserver.Undisturbed(t, time.Second, func() error {
			began := time.Now()
			got, err := send(p.client, http.MethodGet, p.url+"/readyz", "", nil)
			if err != nil {
				return err
			}
			if took := time.Since(began); took > 3*time.Second { // a second, on a machine that is not busy
				return fmt.Errorf("readyz took %v", took)
			}
			status, said = got.status, decode[struct{ Checks map[string]string }](t, got).Checks["database"]
			return nil
		})
		return status, said
	}
	for n, away := range absences(other) {
		away.begin(t)
		until(t, 10*time.Second, away.name+": sync is not ready", func() bool {
			status, said := line(sync)
			return status == http.StatusServiceUnavailable && said != "ok"
		})
		if _, said := line(sync); away.name == "read-only" && said != "The database takes no writes." {
			t.Errorf("%s: %s", away.name, said)
		}
		away.end(t)
		until(t, 20*time.Second, away.name+": sync is ready", func() bool { return sync.status(t, "/readyz") == http.StatusOK })
		if got, err := sync.place(t, sync.onSale(t, 1).ID, sync.user(n)); err != nil || got.status != http.StatusCreated {
			t.Errorf("%s: ready, and sells nothing: %d %s %v", away.name, got.status, got.body, err)
		}
	}

	absences(database)[2].begin(t)
	until(t, 10*time.Second, "async tells that the database is away", func() bool {
		status, said := line(async)
		return status == http.StatusOK && strings.HasPrefix(said, "away for ")
	})
	promised := map[string]string{}
	order := async.accepted(t, voucher.ID, async.user(1))
	promised[order.ID] = order.UserID
	until(t, 20*time.Second, "async is not ready", func() bool { return async.status(t, "/readyz") == http.StatusServiceUnavailable })
	absences(database)[2].end(t)
	until(t, 20*time.Second, "async is ready", func() bool {
		status, said := line(async)
		return status == http.StatusOK && said == "ok"
	})
	async.conserved(t, voucher.ID, promised)
}

//go:build faults

//part:databases
//part:mysql8

package e2e_test

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// TestReadinessTellsTheTruthOfTheDatabase: sync sells nothing without writes or answers, and is unready. Async promises
// on for a while, ready as long. When the database is back all is persisted, and nothing was taken for poison.
func TestReadinessTellsTheTruthOfTheDatabase(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnDatabase(t)
	async := launch(t, s.with(settings{"SECKILL_BACKLOG_MAX_AGE": "30s"}))
	onDatabase(t, own, "CREATE DATABASE other")
	sync := launch(t, onServers(t).with(settings{"SECKILL_DATABASE_DSN": own.DSN("other")}))
	says := func(p *process, ready int, what string) {
		t.Helper()
		check.Patiently(t, "readiness says "+what, func() bool {
			got := check.Value(p.Get("/readyz"))(t)
			said := remote.Decode[struct{ Checks map[string]string }](t, got).Checks["database"]
			return got.Status == ready && strings.HasPrefix(said, what)
		})
	}
	for n, away := range absences(own) {
		voucher := async.onSale(t, 100)
		promised := async.buysAll(t, voucher.ID, users(async.app, 1000*n, 1))
		async.quiet(t, voucher.ID)
		away.begin(t)
		says(sync, http.StatusServiceUnavailable,
			map[string]string{"read-only": "The database takes no writes."}[away.name])
		says(async, http.StatusOK, "away for ")
		maps.Copy(promised, async.buysAll(t, voucher.ID, users(async.app, 1000*n+1, 50)))
		if away.name == "read-only" {
			async.unready(t) // its backlog is too old
		}
		away.end(t)
		says(sync, http.StatusOK, "ok")
		sync.buys(t, sync.onSale(t, 1).ID, sync.user(n))
		says(async, http.StatusOK, "ok")
		async.kept(t, voucher.ID, promised)
		async.sellsOn(t, voucher.ID, 1000*n+500)
	}
	noDeadLetters(t, s)
}

func noDeadLetters(t *testing.T, s settings) {
	t.Helper()
	orders := regexp.MustCompile(`[0-9a-v]{26}\.[0-9a-v]{26}`)
	listed, err := runs(t, s, "deadletters", "list")
	check.That(t, err == nil && !orders.MatchString(listed), "dead letters: %v\n%s", err, listed)
}

// TestLockedVoucherStopsNoOtherSale: somebody holds one voucher's row. Transactions lock by id: those before it are
// locked by whoever waits, those behind are not. Buyers of both are served meanwhile.
func TestLockedVoucherStopsNoOtherSale(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"conditional", "pessimistic", "optimistic"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			s := onServers(t).with(settings{"SECKILL_STOCK_STRATEGY": strategy})
			a := start(t, s)
			vouchers := []model.Voucher{a.onSale(t, 10_000), a.onSale(t, 10_000), a.onSale(t, 10_000)}
			slices.SortFunc(vouchers, func(a, b model.Voucher) int { return strings.Compare(a.ID, b.ID) })
			release := holdRow(t, s, vouchers[1].ID)
			check.Volley(150, func(n int) {
				if i := n % 3; i != 1 {
					c := newCrowd(a, vouchers[i].ID)
					c.insist(t, a.user(n))
					check.Equal(t, "orders of another voucher meanwhile", c.yes, 1)
				} else if got, err := a.Place(t, vouchers[i].ID, a.user(n)); err == nil && got.Sells() {
					t.Errorf("the voucher whose row is locked is sold: %s", got.Body)
				}
			})
			release()
			got := remote.Insist(t, "after the lock",
				func(int) (api.Answer, error) { return a.Place(t, vouchers[1].ID, a.user(-1)) })
			check.Equal(t, "after the lock", got.Status, http.StatusCreated)
		})
	}
}

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

// While the database is away promises go on: that is what the queue is for. When it is back everything is persisted,
// and nothing has been taken for poison.
func TestPromisesGoOnWithoutADatabase(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnDatabase(t)
	a := start(t, s)
	for n, away := range absences(own) {
		voucher := a.onSale(t, 100)
		promised := a.buysAll(t, voucher.ID, users(a, 1000*n, 1))
		a.quiet(t, voucher.ID)
		away.begin(t)
		meanwhile := a.buysAll(t, voucher.ID, users(a, 1000*n+1, 50)) // it is away for as long as that takes
		away.end(t)
		maps.Copy(promised, meanwhile)
		a.kept(t, voucher.ID, promised)
		a.sellsOn(t, voucher.ID, 1000*n+500)
	}
	noDeadLetters(t, s)
}

// noDeadLetters demands that nothing was taken for poison.
func noDeadLetters(t *testing.T, s settings) {
	t.Helper()
	orders := regexp.MustCompile(`[0-9a-v]{26}\.[0-9a-v]{26}`)
	listed, err := runs(t, s, "deadletters", "list")
	check.That(t, err == nil && !orders.MatchString(listed), "dead letters: %v\n%s", err, listed)
}

// TestLockedVoucherStopsNoOtherSale: somebody keeps one voucher's row locked. Transactions lock vouchers by id, so that
// those before it are locked by whoever waits for it, and those behind it are not. Buyers of both are served while it
// is locked.
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
			got := remote.Insist(t, "after the lock", func(int) (api.Answer, error) { return a.Place(t, vouchers[1].ID, a.user(-1)) })
			check.Equal(t, "after the lock", got.Status, http.StatusCreated)
		})
	}
}

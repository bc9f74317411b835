//go:build faults

//part:databases
//part:mysql8

package e2e_test

import (
	"database/sql"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// The answer to a COMMIT is lost with the connection: the orders are there, and are persisted again without a second
// row.
func TestConnectionResetDuringCommit(t *testing.T) {
	t.Parallel()
	for name, lost := range directions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := asyncOnServers(t)
			w, throughWire := throughDatabase(t, s.role("worker"))
			a := start(t, s.role("api"))
			start(t, throughWire)
			voucher := a.onSale(t, 5)
			came, _ := w.holdAt(lost, a.user(1), "COMMIT")
			order := a.accepted(t, voucher.ID, a.user(1))
			check.Receive(t, "the COMMIT", came)
			w.cut()
			a.becomes(t, order, model.OrderUnpaid)
			check.Equal(t, "orders", len(a.conserved(t, voucher.ID, map[string]string{order.ID: order.UserID})), 1)
			a.sellsOn(t, voucher.ID, 10)
		})
	}
}

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

// Somebody else's transactions lock the same rows in another order and are the heavier ones, so that the database ends
// the service's each time. Everything is persisted.
func TestDeadlocksArePersistedAgain(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnDatabase(t)
	a := start(t, s)
	voucher := a.onSale(t, 2000)
	db := adminOf(t, own, testserver.DefaultSchema)
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), "CREATE TABLE weight (seq INT)")))
	first := a.accepted(t, voucher.ID, a.user(0)) // opens the hot copy
	a.becomes(t, first, model.OrderUnpaid)
	promised, attempts := map[string]string{first.ID: first.UserID}, 0
	for n := range 5 {
		check.Eventually(t, fmt.Sprintf("the database has ended %d transactions", n+1), func() bool {
			attempts++
			buys := func() { maps.Copy(promised, a.buysAll(t, voucher.ID, users(a, 20*attempts, 20))) }
			return crosses(t, db, voucher.ID, buys)
		})
	}
	a.kept(t, voucher.ID, promised)
	noDeadLetters(t, s)
}

// crosses locks a voucher's orders, so that what is bought then cannot be inserted, and then the voucher, and reports
// whether the database had to end somebody else for that.
func crosses(t *testing.T, db *sql.DB, voucherID string, buys func()) bool {
	t.Helper()
	before := testserver.Deadlocks(t, db)
	tx := check.Value(db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))(t)
	defer func() { _ = tx.Rollback() }()
	check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), "INSERT INTO weight VALUES (0)"+strings.Repeat(", (0)", 2000))))
	check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), "SELECT id FROM orders WHERE voucher_id = ? FOR UPDATE", voucherID)))
	buys()
	check.Eventually(t, "somebody holds the voucher and waits for the orders", func() bool {
		return testserver.Waiting(t, db, "INSERT INTO orders")
	})
	// Who has waited for too long meanwhile has let the voucher go.
	check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), "UPDATE vouchers SET title = title WHERE id = ?", voucherID)))
	return testserver.Deadlocks(t, db) > before
}

// A voucher's row may be away for a moment, while its table is loaded from a dump. What was accepted before and what
// was reserved meanwhile becomes orders when it is back, and nothing is promised of a voucher that the database does
// not know.
func TestOrdersWaitForTheRowOfTheirVoucher(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	a := start(t, s)
	voucher, other := a.onSale(t, 100), a.onSale(t, 100)
	before := a.accepted(t, voucher.ID, a.user(1))
	back := check.Value(hideVoucher(t.Context(), behind(t, s), voucher.ID))(t)
	// While the database is slow to tell, as it may be on a busy machine, the hot copy is enough to promise an order.
	n := 1
	check.Patiently(t, "somebody is told to come again", func() bool {
		n++
		got, err := a.Place(t, voucher.ID, a.user(n))
		return err == nil && got.Code() == model.CodeUnavailable
	})
	a.becomes(t, a.accepted(t, other.ID, a.user(1)), model.OrderUnpaid)
	check.Must(t, back())
	a.becomes(t, before, model.OrderUnpaid)
	check.Patiently(t, "what was reserved meanwhile is an order", func() bool {
		got, err := a.Place(t, voucher.ID, a.user(n))
		return err == nil && got.Code() == model.CodeAlreadyOrdered && remote.Decode[api.Problem](t, got).OrderStatus == model.OrderUnpaid
	})
	if listed, err := runs(t, s, "deadletters", "list"); err != nil || len(linesNaming(listed, voucher.ID)) != 0 {
		t.Errorf("deadletters list: %v\n%s", err, listed)
	}
	a.sellsOn(t, voucher.ID, 100)
}

// A voucher is not deleted. So a row that is away says nothing about one that was there, also when no hot copy can be
// asked.
func TestAVoucherWhoseRowIsAwayIsNotMissing(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			own, s := asyncOnOwnRedis(t)
			s = s.with(settings{"SECKILL_ORDER_MODE": mode})
			a := start(t, s)
			voucher := a.onSale(t, 100)
			sold := func(user int) bool {
				got, err := a.Place(t, voucher.ID, a.user(user))
				return err == nil && (got.Status == http.StatusCreated || got.Status == http.StatusAccepted)
			}
			check.Need(t, sold(1), "the voucher does not sell")
			back := check.Value(hideVoucher(t.Context(), behind(t, s), voucher.ID))(t)
			if mode == "async" {
				onRedis(t, own, "", "CONFIG", "SET", "requirepass", redisSecret)
				onRedis(t, own, redisSecret, "CLIENT", "KILL", "TYPE", "normal")
			}
			// The instance forgets its own entry within a second, and asks for the row again and again.
			for range 40 {
				a.refuses(t, voucher.ID, a.user(2))
				check.Stays(t, "time passes", func() bool { return true })
			}
			if mode == "async" {
				onRedis(t, own, redisSecret, "CONFIG", "SET", "requirepass", "")
			}
			check.Must(t, back())
			check.Patiently(t, "the voucher sells again", func() bool { return sold(3) })
		})
	}
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

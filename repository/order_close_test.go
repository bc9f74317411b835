//part:stores

package repository_test

import (
	"fmt"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// Of orders that move together, those that keep their units write no release.
func TestOnlyReturnedUnitsGoToTheHotCopy(t *testing.T) {
	t.Parallel()
	over(t, dialects(), newAsync, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v := l.onSale(t, 2)
		kept, returned := l.bought(t, v.ID, "alice"), l.bought(t, v.ID, "bob")
		moved := check.Value(repository.MoveTogether(t.Context(), l.db, []model.Order{kept, returned},
			[]model.OrderStatus{model.OrderPaid, model.OrderCanceled},
			[]model.Mover{model.MoverProvider, model.MoverBuyer}))(t)
		check.That(t, moved[0].Status == model.OrderPaid && moved[1].Status == model.OrderCanceled, "moved %+v", moved)
		list := check.Value(l.releases.After(t.Context(), model.Release{}, 10))(t)
		check.That(t, len(list) == 1 && list[0].OrderID == returned.ID,
			"the outbox has %+v, want order %s alone", list, returned.ID)
		l.balanced(t, v.ID, 1)
	})
}

func (f *fixture) coolingDown(t testing.TB, stock int64, cooldown time.Duration) model.Voucher {
	t.Helper()
	return f.voucher(t, model.VoucherFields{Stock: stock, Cooldown: model.Window(cooldown)})
}

// Without the purchase's lock of the voucher's row, it would find neither a cool-down nor a live order.
func TestACancellationDuringAPurchaseOpensNoGap(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		near := newFixture(t, store{dialect: "mysql", strategy: strategy})
		v := near.coolingDown(t, 3, time.Hour)
		first := order(t, v.ID, "ann")
		check.Must(t, near.place(t, first).Err)
		canceled := make(chan error, 1)
		far := near.wired(t, onceOn("SELECT id, voucher_id, user_id, status", func(*wire) verdict {
			go func() {
				_, _, err := near.cancel(t.Context(), "ann", first.ID)
				canceled <- err
			}()
			check.Eventually(t, "the cancellation waits for the row, or is done", func() bool {
				return near.blocked(t, v.ID) || len(canceled) > 0
			})
			return pass
		}))
		wantCode(t, far.place(t, order(t, v.ID, "ann")).Err, model.CodeAlreadyOrdered)
		check.Must(t, <-canceled)
		wantCode(t, far.place(t, order(t, v.ID, "ann")).Err, model.CodeCoolingDown)
		near.balanced(t, v.ID, 0)
	})
}

// TestWhoWaitsIsListed: the list is for hot copies that are loaded, and for the answers from memory.
func TestWhoWaitsIsListed(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		const waiting = 1100 // in three pages of buyers
		v := f.coolingDown(t, 2*waiting, time.Minute)
		var batch []model.Order
		var asked []model.Cancellation
		for i := range waiting + 2 {
			batch = append(batch, order(t, v.ID, fmt.Sprintf("u%05d", i)))
			asked = append(asked, model.Cancellation{OrderID: batch[i].ID, UserID: batch[i].UserID})
		}
		f.create(t, batch...)
		check.Must(t, check.ErrorOf(f.orders.Cancel(t.Context(), asked[1:]))) // the first has an order
		again := f.create(t, batch[1])[0].Order                               // as a repeated message finds it
		check.That(t, again.Status == model.OrderCanceled && again.CooldownUntil != nil, "found again: %+v", again)
		last := batch[waiting+1].UserID
		f.exec(t, "UPDATE orders SET cooldown_until = created_at WHERE user_id = ?", last) // and the last has waited
		check.Must(t, check.ErrorOf(f.copies.Close(t.Context(), v.ID, 0, "")))
		var buyers []string
		var cooling []model.Cooling
		check.Must(t, f.orders.Buyers(t.Context(), v, func(u string) error { buyers = append(buyers, u); return nil }))
		check.Must(t, f.copies.Snapshot(t.Context(), v.ID, 1, func(s model.Snapshot) error {
			return s.Cooling(t.Context(), func(some []model.Cooling) error {
				cooling = append(cooling, some...)
				return nil
			})
		}))
		check.Equal(t, "who has an order or waits", len(buyers), waiting+1)
		check.Equal(t, "who waits", len(cooling), waiting)
		check.That(t, buyers[0] == batch[0].UserID && cooling[waiting-1].UserID < last, "%s, %s", buyers[0],
			cooling[waiting-1].UserID)
		check.That(t, cooling[0].UserID == again.UserID && cooling[0].Until.Equal(*again.CooldownUntil), "%+v, want %v",
			cooling[0], again.CooldownUntil)
	})
}

// A place may be an order at once. Whose unit goes to somebody who waits cools down like others.
func TestWhoCoolsDownGetsNoPlace(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, mode model.OrderMode) {
		v := l.voucher(t, model.VoucherFields{Stock: 1, Cooldown: model.Window(time.Hour), Waitlist: true})
		ends := func(user string) {
			t.Helper()
			check.Must(t, check.ErrorOf(l.orders.Cancel(t.Context(),
				[]model.Cancellation{{OrderID: l.owns(t, v.ID, user).ID, UserID: user}})))
		}
		refused := func() {
			t.Helper()
			_, _, err := l.join(t.Context(), v.ID, "ann")
			wantCode(t, err, model.CodeCoolingDown)
		}
		l.bought(t, v.ID, "ann")
		ends("ann")
		refused()
		l.bought(t, v.ID, "bob")
		refused()
		l.joins(t, v.ID, "carl")
		ends("bob")
		check.That(t, l.owns(t, v.ID, "carl").Live(), "the unit does not belong to the user who waited")
		told := l.number(t, "SELECT COUNT(*) FROM releases WHERE user_id = 'bob' AND heir_id IS NOT NULL AND cooldown_until IS NOT NULL AND voucher_id = ?", v.ID)
		check.Equal(t, "releases that tell the hot copy both", told,
			map[model.OrderMode]int64{model.ModeAsync: 1}[mode])
		wantCode(t, l.place(t, order(t, v.ID, "bob")).Err, model.CodeCoolingDown)
		l.balanced(t, v.ID, 1)
	})
}

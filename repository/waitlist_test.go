package repository_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// position is a user's place, or the code of what is said instead.
func (l life) position(t testing.TB, voucherID, userID string) string {
	t.Helper()
	place, err := l.orders.Place(t.Context(), voucherID, userID)
	switch {
	case err != nil:
		return string(model.CodeOf(err))
	case place.OrderID != "":
		return "order " + place.OrderID
	}
	return fmt.Sprint(place.Position)
}

func (l life) join(ctx context.Context, voucherID, userID string) (model.WaitlistPlace, bool, error) {
	joined, err := l.orders.Join(ctx, voucherID, []model.Joining{{UserID: userID}})
	if err != nil {
		return model.WaitlistPlace{}, false, err
	}
	return joined[0].Place, joined[0].Created, joined[0].Err
}

func (l life) leave(ctx context.Context, voucherID, userID string) error {
	left, err := l.orders.Leave(ctx, voucherID, []string{userID})
	if err != nil {
		return err
	}
	return left[0]
}

func (f *fixture) withWaitlist(t testing.TB, stock int64) model.Voucher {
	t.Helper()
	return f.voucher(t, model.VoucherFields{Stock: stock, Waitlist: true})
}

func (l life) joins(t testing.TB, voucherID string, users ...string) {
	t.Helper()
	for n, user := range users {
		place, created, err := l.join(t.Context(), voucherID, user)
		check.Must(t, err)
		check.That(t, created && place.Position >= int64(n+1), "%s has place %d (%v)", user, place.Position, created)
	}
}

func (l life) owns(t testing.TB, voucherID, userID string) model.Order {
	t.Helper()
	page := check.Value(l.orders.List(t.Context(), model.OrderQuery{VoucherID: voucherID, UserID: userID}))(t)
	for _, o := range page.Items {
		if o.Live() {
			return o
		}
	}
	return model.Order{}
}

// A place is taken at the end and once, by who has no order of a voucher of which nothing is left.
func TestPlacesOnAWaitlist(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v := f.withWaitlist(t, 1)
		join := func(user string) model.Code {
			if _, _, err := l.join(t.Context(), v.ID, user); err != nil {
				return model.CodeOf(err)
			}
			return "OK"
		}
		check.Equal(t, "while units are free", join("a"), model.CodeConflict)
		empty := f.withWaitlist(t, 0)
		l.joins(t, empty.ID, "a")
		wantCode(t, check.ErrorOf(f.vouchers.Patch(t.Context(), empty.ID, model.VoucherPatch{Waitlist: new(bool)})),
			model.CodeConflict)
		_, _, err := l.join(t.Context(), f.onSale(t, 0).ID, "a")
		wantCode(t, err, model.CodeConflict)
		bought := l.bought(t, v.ID, "owner")
		check.Equal(t, "with an order", join("owner"), model.CodeAlreadyOrdered)
		l.joins(t, v.ID, "a", "b", "c")
		place, created, err := l.join(t.Context(), v.ID, "b")
		check.That(t, err == nil && !created && place.Position == 2, "again: %+v %v %v", place, created, err)
		check.Must(t, l.leave(t.Context(), v.ID, "a"))
		check.Equal(t, "who has left", l.position(t, v.ID, "a"), "NOT_FOUND")
		check.Equal(t, "who is first now", l.position(t, v.ID, "b"), "1")
		wantCode(t, l.leave(t.Context(), v.ID, "a"), model.CodeNotFound)
		_, _, err = l.join(t.Context(), "none", "a")
		wantCode(t, err, model.CodeNotFound)
		check.Equal(t, "who is counted", f.number(t, "SELECT waiting FROM vouchers WHERE id = ?", v.ID), 2)

		l.cancels(t, "owner", bought.ID)
		heir := l.owns(t, v.ID, "b")
		check.That(t, heir.Status == model.OrderUnpaid && heir.ExpiresAt.Sub(*heir.UnpaidAt) == paymentWindow,
			"the unit went to %+v", heir)
		check.Equal(t, "who was served", l.position(t, v.ID, "b"), "order "+heir.ID)
		wantCode(t, l.leave(t.Context(), v.ID, "b"), model.CodeAlreadyOrdered)
		check.Equal(t, "who cancels and joins again is last", join("owner"), "OK")
		check.Equal(t, "after", l.position(t, v.ID, "owner"), "2")

		l.lapse(t, heir)
		check.Equal(t, "expired", len(check.Value(l.orders.Expire(t.Context(), []string{heir.ID}))(t)), 1)
		next := l.owns(t, v.ID, "c")
		check.Equal(t, "what expires goes to the next", next.Status, model.OrderUnpaid)
		check.Equal(t, "and to no purchase", l.place(t, order(t, v.ID, "other")).Err != nil, true)
		check.Value(l.payments.Settle(t.Context(), money(t, l.started(t, next))))(t)
		l.refunded(t, next.ID)
		check.Equal(t, "what is refunded too", l.owns(t, v.ID, "owner").Status, model.OrderUnpaid)
		f.balanced(t, v.ID, 1)

		// The report tells whether the order was kept, and an operator whether somebody waits.
		waited := check.Value(l.orders.Waited(t.Context(), v.ID))(t)
		check.That(t, waited.Places == 4 && waited.Served == 3 && waited.Left == 1 && waited.Waiting+waited.Overtaken == 0 &&
			len(waited.Turns) == 3 && waited.Turns[2].Equal(heir.CreatedAt), "the report: %+v", waited)
		f.exec(t, "UPDATE orders SET created_at = ? WHERE id = ?", heir.CreatedAt.Add(-time.Hour), next.ID)
		check.Equal(t, "overtaken", check.Value(l.orders.Waited(t.Context(), v.ID))(t).Overtaken, 1)
		waiting, held, err := l.orders.Waitlists(t.Context())
		check.That(t, err == nil && waiting == 1 && held == 0, "%d wait, %d units are held, %v", waiting, held, err)
		last := l.owns(t, v.ID, "owner")
		f.exec(t, "UPDATE orders SET expires_at = ? WHERE id = ?", heir.CreatedAt.Add(-time.Hour), last.ID)
		l.joins(t, v.ID, "z")
		waiting, held, err = l.orders.Waitlists(t.Context())
		check.That(t, err == nil && waiting == 2 && held == 1, "%d wait, %d units are held, %v", waiting, held, err)
	})
}

// What is added is for those who wait, and the rest for the open sale.
func TestARestockServesWhoWaits(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v := f.withWaitlist(t, 1)
		l.bought(t, v.ID, "owner")
		l.joins(t, v.ID, "a", "b", "c")
		restocked := check.Value(f.changeStock(t, v.ID, 3))(t)
		check.Equal(t, "what remains", restocked.Remaining, 0)
		check.Equal(t, "orders of a, b and c",
			fmt.Sprintln(l.owns(t, v.ID, "a").Status, l.owns(t, v.ID, "b").Status, l.position(t, v.ID, "c")),
			"unpaid unpaid 1\n")
		restocked = check.Value(f.changeStock(t, v.ID, 6))(t)
		check.Equal(t, "what remains for the open sale", restocked.Remaining, 2)
		f.balanced(t, v.ID, 4)
		check.Must(t, l.place(t, order(t, v.ID, "open")).Err)
	})
}

// Whatever happens at once, a unit goes to one user, who waits first, and none to the open sale while anybody waits.
func TestWaitlistRace(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		const units, users = 5, 30
		v := f.withWaitlist(t, units)
		var live []model.Order
		for n := range units {
			live = append(live, l.bought(t, v.ID, fmt.Sprint("first-", n)))
		}
		var mu sync.Mutex
		check.Volley(users, func(n int) {
			user := fmt.Sprintf("user-%02d", n)
			if n%6 == 0 { // somebody who does not wait
				outcome := check.Value(l.orders.CreateOrders(t.Context(), []model.Order{order(t, v.ID, user)}))(t)[0]
				check.That(t, outcome.Err != nil || n < units, "%s bought what others wait for", user)
				return
			}
			if _, _, err := l.join(t.Context(), v.ID, user); err != nil && model.CodeOf(err) != model.CodeConflict {
				t.Errorf("%s: %v", user, err)
			}
			mu.Lock()
			var one model.Order
			if len(live) > 0 {
				one, live = live[0], live[1:]
			}
			mu.Unlock()
			if one.ID != "" {
				l.cancels(t, one.UserID, one.ID)
			}
		})
		waiting := f.number(t, "SELECT COUNT(*) FROM waitlist WHERE voucher_id = ? AND waits = 1", v.ID)
		check.Equal(t, "who is counted", f.number(t, "SELECT waiting FROM vouchers WHERE id = ?", v.ID), waiting)
		audit := check.Value(f.vouchers.Audit(t.Context(), v.ID))(t)
		check.That(t, audit.Balanced && (waiting == 0 || audit.Database.LiveOrders == units), "%+v while %d wait",
			audit, waiting)
		check.Equal(t, "users with two orders",
			f.number(t, "SELECT COUNT(*) FROM (SELECT user_id FROM orders WHERE voucher_id = ? AND slot = 1 GROUP BY user_id HAVING COUNT(*) > 1) twice", v.ID), 0)
		check.Equal(t, "users who have an order and wait",
			f.number(t, "SELECT COUNT(*) FROM waitlist JOIN orders ON orders.voucher_id = waitlist.voucher_id AND orders.user_id = waitlist.user_id AND slot = 1 WHERE waits = 1 AND waitlist.voucher_id = ?", v.ID), 0)
	})
}

// In async the outbox says, in the transactions' order, which order got a unit. What is on sale again has no heir.
func TestReleasesNameTheHeirs(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v := f.withWaitlist(t, 3)
		first := []model.Order{l.async(t, v.ID, "x"), l.async(t, v.ID, "y"), l.async(t, v.ID, "z")}
		l.joins(t, v.ID, "a", "b")
		canceled := check.Value(l.orders.Cancel(t.Context(),
			[]model.Cancellation{{OrderID: first[0].ID, UserID: "x"}}))(t)[0]
		check.Must(t, canceled.Err)
		heir := l.owns(t, v.ID, "a")
		told := model.Release{
			OrderID: first[0].ID, VoucherID: v.ID, UserID: "x", HeirID: heir.ID, HeirUserID: "a",
			Direct: true,
		}
		check.That(t, slices.Equal(canceled.Releases, []model.Release{told}), "what the call tells: %+v",
			canceled.Releases)
		l.lapse(t, heir, first[1], first[2])
		check.Equal(t, "expired", len(check.Value(l.orders.Expire(t.Context(),
			[]string{heir.ID, first[1].ID, first[2].ID}))(t)), 3)
		next := l.owns(t, v.ID, "b")
		got := map[string]string{}
		last := int64(0)
		for _, r := range check.Value(f.releases.After(t.Context(), model.Release{}, 10))(t) {
			got[r.OrderID] = r.HeirID + " " + r.HeirUserID
			if r.HeirID != "" {
				check.That(t, r.ID > last, "the release of %s is before that of its heir", r.OrderID)
				last = r.ID
			}
		}
		heirs := 0
		for _, o := range []model.Order{heir, first[1], first[2]} {
			if got[o.ID] == next.ID+" b" {
				heirs++
			} else {
				check.Equal(t, "the heir of a unit that is on sale", got[o.ID], " ")
			}
		}
		check.Equal(t, "orders whose unit b has got", heirs, 1)
		check.Equal(t, "the heir of x", got[first[0].ID], heir.ID+" a")
		f.balanced(t, v.ID, 1)
	})
}

// async makes an order that a hot copy has admitted.
func (l life) async(t testing.TB, voucherID, userID string) model.Order {
	t.Helper()
	o := order(t, voucherID, userID)
	o.CreatedAt = time.Now()
	outcomes := check.Value(l.orders.Persist(t.Context(), []model.Reservation{{Order: o, Epoch: 1}}))(t)
	check.Must(t, outcomes[0].Err)
	return outcomes[0].Order
}

// Whoever finds that the database does not add up hands what remains over to those who wait, and counts them anew.
func TestRepairedStockIsHandedOver(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v := f.withWaitlist(t, 1)
		l.bought(t, v.ID, "owner")
		l.joins(t, v.ID, "a", "b", "c")
		f.exec(t, "UPDATE vouchers SET waiting = 0 WHERE id = ?", v.ID)
		check.Must(t, l.leave(t.Context(), v.ID, "c"))
		f.exec(t, "UPDATE vouchers SET waiting = 5 WHERE id = ?", v.ID)
		check.Equal(t, "balanced, with another number who wait",
			check.Value(f.vouchers.Audit(t.Context(), v.ID))(t).Balanced, false)
		f.exec(t, "UPDATE vouchers SET stock = stock + 1 WHERE id = ?", v.ID)
		check.That(t, check.Value(f.vouchers.RepairStock(t.Context(), v.ID))(t) != nil, "nothing was found")
		check.Equal(t, "the heir", l.owns(t, v.ID, "a").Status, model.OrderUnpaid)
		f.balanced(t, v.ID, 2)
		check.That(t, check.Value(f.vouchers.RepairStock(t.Context(), v.ID))(t) == nil,
			"a second repair finds something")

		// More than one transaction serves are served with each repair, and nothing is for the open sale before.
		const most = 10_000
		asked := make([]model.Joining, most+1)
		for n := range asked {
			asked[n].UserID = user(n)
		}
		check.Value(l.orders.Join(t.Context(), v.ID, asked))(t)
		f.exec(t, "UPDATE vouchers SET stock = stock + ? WHERE id = ?", most+5, v.ID)
		for _, want := range []struct{ waiting, remaining int64 }{{2, 0}, {0, 3}} {
			check.That(t, check.Value(f.vouchers.RepairStock(t.Context(), v.ID))(t) != nil, "nothing was found")
			got := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
			check.That(t, got.Waiting == want.waiting && got.Remaining == want.remaining,
				"%d wait, %d remain; want %+v", got.Waiting, got.Remaining, want)
		}
		f.balanced(t, v.ID, most+4)

		// Where they are exactly as many as one transaction serves, what is left of a restock is on sale.
		full := f.withWaitlist(t, 1)
		l.bought(t, full.ID, "owner")
		check.Value(l.orders.Join(t.Context(), full.ID, asked[:most]))(t)
		check.Value(f.vouchers.ChangeStock(t.Context(), full.ID, model.StockChange{Delta: new(int64(most + 2))},
			model.Idempotency{}))(t)
		f.balanced(t, full.ID, most+1)
	})
}

// The first thousand positions are counted. One further behind is no more than how many wait.
func TestPositionsOfMany(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v := f.withWaitlist(t, 1)
		bought := l.bought(t, v.ID, "owner")
		var asked []model.Joining
		for n := range 1003 {
			asked = append(asked, model.Joining{UserID: user(n)})
		}
		for n, joined := range check.Value(l.orders.Join(t.Context(), v.ID, asked))(t) {
			check.That(t, joined.Err == nil && joined.Created && joined.Place.Position == int64(n+1), "place %d: %+v",
				n, joined)
		}
		at := func(n int, want string) {
			t.Helper()
			check.Equal(t, user(n), l.position(t, v.ID, user(n)), want)
		}
		check.Must(t, l.leave(t.Context(), v.ID, user(5)))
		at(4, "5")
		at(6, "6")
		at(1002, "1002")
		l.cancels(t, "owner", bought.ID)
		at(1002, "1001")
		at(6, "5")
		at(1000, "999")
		for n := 7; n < 12; n++ {
			check.Must(t, l.leave(t.Context(), v.ID, user(n)))
		}
		at(1002, "996")
		l.joins(t, v.ID, "a", "b", "c", "d", "e")
		waiting := f.number(t, "SELECT waiting FROM vouchers WHERE id = ?", v.ID)
		check.Equal(t, "who is last", l.position(t, v.ID, "e"), fmt.Sprint(waiting))
		check.Equal(t, "who is counted last", l.position(t, v.ID, "d"), "1000")
	})
}

// A user who comes and goes a thousand times makes nobody's position greater than how many wait.
func TestAPositionCountsWhoWaits(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v := f.withWaitlist(t, 0)
		l.joins(t, v.ID, "first")
		// It is as if 1,200 had joined and left.
		f.exec(t, "UPDATE vouchers SET places = places + 1200 WHERE id = ?", v.ID)
		l.joins(t, v.ID, "second")
		check.Equal(t, "the second of two", l.position(t, v.ID, "second"), "2")
	})
}

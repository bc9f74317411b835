//part:stores

package repository_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

type contested struct {
	order    model.Order
	payments []model.Payment
	code     model.SealedCode
	moves    int // recorded before the contest
}

// Each order has one legal history, each move one author; no unit returns twice, and the money adds up.
func TestMovesAtOnce(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, mode model.OrderMode) {
		orders, callers := check.Count(t, "ORDERS", 18, 150), check.Count(t, "CALLERS", 16, 100)
		other := lifeOf(openFixture(t, l.store, l.options))
		other.asIn(t, mode)
		v := l.voucher(t, model.VoucherFields{Stock: int64(orders), Withdrawal: model.Window(time.Hour)})
		fought := l.contest(t, v.ID, orders)
		moved := fight(t, []life{l, other}, fought, callers)
		var live int64
		for i, c := range fought {
			live += l.settled(t, c, int(moved[i].Load()), mode)
		}
		l.balanced(t, v.ID, live)
		logged := l.number(t, "SELECT COUNT(*) FROM admin_log WHERE action LIKE 'order.%'")
		by := l.number(t, "SELECT COUNT(*) FROM order_history WHERE actor = 'boss'")
		check.Equal(t, "what administrators did, as logged", logged, by)
	})
}

// fight has callers try every move of every order, in any order and at once. It returns how often each order was moved.
func fight(t *testing.T, instances []life, fought []contested, callers int) []atomic.Int32 {
	t.Helper()
	type try struct{ order, what int }
	var tries []try
	for i := range fought {
		for what := range cashed + 1 {
			tries = append(tries, try{i, what})
		}
	}
	rand.Shuffle(len(tries), func(i, j int) { tries[i], tries[j] = tries[j], tries[i] })
	moved := make([]atomic.Int32, len(fought))
	var next atomic.Int32
	check.Volley(callers, func(n int) {
		for at := next.Add(1) - 1; int(at) < len(tries); at = next.Add(1) - 1 {
			try := tries[at]
			changed, err := instances[n%len(instances)].try(t.Context(), t, fought[try.order], try.what)
			if code := model.CodeOf(err); err != nil && code != model.CodeIllegalState && code != model.CodeNotFound {
				t.Errorf("order %d, move %d: %v", try.order, try.what, err)
			}
			if changed {
				moved[try.order].Add(1)
			}
		}
	})
	return moved
}

// Single moves, and batches of two vouchers' cancellations and expiries, have one order of locks.
func TestNoDeadlocksBetweenMoves(t *testing.T) {
	t.Parallel()
	f, deadlocks := newAsync(t, stores()[0]).watched(t, model.StockConditional)
	f.asIn(t, model.ModeAsync)
	l := lifeOf(f)
	orders, rounds := check.Count(t, "ORDERS", 12, 60), check.Count(t, "ROUNDS", 4, 10)
	terms := model.VoucherFields{Stock: int64(orders), Withdrawal: model.Window(time.Hour)}
	one, two := l.voucher(t, terms), l.voucher(t, terms)
	fought := append(l.contest(t, one.ID, orders), l.contest(t, two.ID, orders)...)
	var batches sync.WaitGroup
	for range 4 {
		batches.Go(func() {
			for range rounds {
				var ids []string
				var asked []model.Cancellation
				for _, i := range rand.Perm(len(fought))[:len(fought)/8] {
					o := fought[i].order
					ids, asked = append(ids, o.ID), append(asked, model.Cancellation{OrderID: o.ID, UserID: o.UserID})
				}
				check.Is(t, "expire", check.ErrorOf(l.orders.Expire(t.Context(), ids)), nil)
				check.Is(t, "cancel", check.ErrorOf(l.orders.Cancel(t.Context(), asked)), nil)
			}
		})
	}
	fight(t, []life{l}, fought, check.Count(t, "CALLERS", 10, 40))
	batches.Wait()
	check.Equal(t, "deadlocks", deadlocks.Load(), 0)
	for _, v := range []model.Voucher{one, two} { // each unit came back once
		l.balanced(t, v.ID, l.number(t, "SELECT COUNT(*) FROM orders WHERE slot = 1 AND voucher_id = ?", v.ID))
	}
}

// A group of buyers holds the voucher's row and waits for an expiring order; expiry holds that and waits for the row.
// Whichever the server ends runs again at once: no order fails for it, and the unit comes back once.
func TestABuyerAndExpiryInEachOthersWay(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"the buyers are ended": 0, "expiry is ended": 300} {
		for _, strategy := range mysqlStrategies() {
			t.Run(name+"/"+string(strategy), func(t *testing.T) {
				t.Parallel()
				origin := newFixture(t, store{dialect: "mysql", strategy: strategy})
				near, deadlocks := origin.watched(t, strategy)
				v := near.onSale(t, 1000)
				l := lifeOf(near)
				// The group inserts the others first: the server ends the transaction that has changed less.
				old := l.bought(t, v.ID, "zoe")
				lapsing := []string{old.ID}
				for i := range 20 {
					o := l.bought(t, v.ID, fmt.Sprint("lapsed", i))
					l.lapse(t, o)
					lapsing = append(lapsing, o.ID)
				}
				l.lapse(t, old)
				bought := []model.Order{order(t, v.ID, "zoe")}
				for i := range others {
					bought = append(bought, order(t, v.ID, fmt.Sprint("new", i)))
				}
				first := bought[min(others, 1)].ID // in the statement
				var outcomes <-chan []model.Outcome
				far := near.wired(t, onceOn("UPDATE vouchers SET remaining = remaining +", func(*wire) verdict {
					outcomes = near.createLater(t, bought...)
					check.Eventually(t, "the buyers have the row and wait for the order",
						func() bool { return near.blocked(t, first) })
					return pass
				}))
				expired := check.Value(far.orders.Expire(t.Context(), lapsing))(t)
				check.Equal(t, "orders expired", len(expired), len(lapsing))
				answers := <-outcomes
				check.That(t, deadlocks.Load() != 0, "they were not in each other's way")
				live := int64(0)
				for i, outcome := range answers {
					switch {
					case outcome.Err == nil && outcome.Created:
						live++
					// The user had the order that was unpaid until then.
					case i > 0 || model.CodeOf(outcome.Err) != model.CodeAlreadyOrdered:
						t.Errorf("buyer %d: %+v", i, outcome)
					}
				}
				near.balanced(t, v.ID, live)
				check.Equal(t, "expiries on record",
					near.number(t, "SELECT COUNT(*) FROM order_history WHERE to_status = 'expired'"),
					int64(len(lapsing)))
			})
		}
	}
}

// Users buy again and again. No call fails, every unit comes back once, and in the end each user has one.
func TestBuyersComeBackWhileOrdersExpire(t *testing.T) {
	t.Parallel()
	const lapsing, group = 50, 40
	users := check.Count(t, "USERS", 150, 600)
	f := newFixture(t, stores()[0])
	v := f.onSale(t, int64(2*users))
	var first, all []model.Order
	for i := range users {
		first, all = append(first, order(t, v.ID, user(i))), append(all, order(t, v.ID, user(i)))
	}
	var ids []string
	for _, outcome := range f.create(t, first...) {
		ids = append(ids, outcome.Order.ID)
	}
	f.exec(t, "UPDATE orders SET expires_at = created_at")
	buyers := openFixture(t, f.store, f.options)
	var again sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		again.Go(func() {
			for last := false; !last; {
				select {
				case <-done:
					last = true
				default:
				}
				var asked []model.Order
				for _, i := range rand.Perm(users)[:group] {
					asked = append(asked, order(t, v.ID, user(i)))
				}
				outcomes, err := buyers.orders.CreateOrders(t.Context(), asked)
				check.That(t, err == nil, "buy: %v", err)
				for _, outcome := range outcomes {
					check.That(t, outcome.Err == nil || model.CodeOf(outcome.Err) == model.CodeAlreadyOrdered,
						"buy: %v", outcome.Err)
				}
			}
		})
	}
	expired := 0
	for batch := range slices.Chunk(ids, lapsing) {
		expired += len(check.Value(f.orders.Expire(t.Context(), batch))(t))
	}
	close(done)
	again.Wait()
	check.Equal(t, "orders expired", expired, users)
	f.create(t, all...)
	f.balanced(t, v.ID, int64(users))
}

// contest makes orders whose time has passed, each with two payments under way; a third of them are paid.
func (l life) contest(t *testing.T, voucherID string, orders int) []contested {
	t.Helper()
	fought := make([]contested, orders)
	for i := range fought {
		c := contested{order: l.bought(t, voucherID, user(i)), code: newCode(t)}
		c.payments = append(c.payments, l.started(t, c.order))
		// Then another payment can be started.
		l.exec(t, "UPDATE payments SET status = 'failed' WHERE order_id = ?", c.order.ID)
		c.payments = append(c.payments, l.started(t, c.order))
		if i%3 == 0 {
			notice := money(t, c.payments[0])
			notice.Code = c.code
			check.Must(t, check.ErrorOf(l.payments.Settle(t.Context(), notice)))
			c.moves = 1
		}
		fought[i] = c
	}
	l.exec(t, "UPDATE orders SET expires_at = created_at")
	return fought
}

// Moves that try makes beside those of its numbers.
const (
	again     = 7  // a refund that had failed for good is tried again
	withdrawn = 8  // the buyer gives the order back
	usedUp    = 9  // a refund also of what is used
	outside   = 10 // a refund of what was paid elsewhere
	undone    = 11
	cashed    = 12 // an administrator says that it was paid elsewhere
)

func (l life) try(ctx context.Context, t *testing.T, c contested, what int) (changed bool, err error) {
	switch what {
	case 0, 1:
		notice := money(t, c.payments[what])
		if what == 0 {
			notice.Code = c.code
		}
		receipt, err := l.payments.Settle(ctx, notice)
		return receipt.Changed, err
	case 2, 3:
		_, changed, err := l.cancel(ctx, c.order.UserID, c.order.ID)
		return changed, err
	case 4:
		expired, err := l.orders.Expire(ctx, []string{c.order.ID})
		return len(expired) > 0, err
	case 5:
		_, err := l.orders.Redeem(ctx, c.code.Hash, atTill("boss"))
		return err == nil, err
	case cashed:
		_, err := l.payments.Elsewhere(ctx, c.order.ID, newID(t), "boss", model.Elsewhere{Reference: newID(t)}, newCode(t))
		return err == nil, err
	case withdrawn:
		return l.refunds.Withdraw(ctx, c.order.ID, newID(t), c.order.UserID)
	case undone:
		_, err := l.orders.Unredeem(ctx, model.Undo{OrderID: c.order.ID, By: "boss", Reason: "x", Anytime: true})
		return err == nil, err
	default: // 6, usedUp and outside
		refund, _, err := l.refunds.Request(ctx, c.order.ID, newID(t), "boss", model.RefundAsk{Used: what == usedUp})
		check.Equal(t, "whether a person pays it back", refund.Outside, refund.Status == model.RefundOutside)
		return err == nil, err
	}
}

func (l life) settled(t *testing.T, c contested, moved int, mode model.OrderMode) (live int64) {
	t.Helper()
	steps := l.steps(t, c.order.ID)
	recorded := l.number(t, "SELECT COUNT(*) FROM order_history WHERE order_id = ?", c.order.ID)
	check.That(t, int(recorded) == c.moves+moved,
		"order %s: %d moves have an author, %d are recorded: %v", c.order.ID, moved, int(recorded)-c.moves, steps)
	o := check.Value(l.orders.Get(t.Context(), c.order.ID))(t)
	var releases int64
	for _, step := range steps {
		if strings.HasPrefix(step, "canceled") || strings.HasPrefix(step, "expired") || step == "refunded by boss" ||
			step == "refunded by "+c.order.UserID {
			releases++
		}
	}
	if o.Live() {
		live = 1
	}
	uses := l.number(t, "SELECT COUNT(*) FROM uses WHERE order_id = ? AND undone_at IS NULL", c.order.ID)
	check.That(t, uses == 1 == (o.RedeemedAt != nil) && uses <= 1, "order %s, %s: %d uses are alive: %v", o.ID, o.Status, uses, steps)
	check.That(t, releases+live == 1, "order %s: %d units returned, %d held: %v", o.ID, releases, live, steps)
	if mode == model.ModeSync {
		releases = 0
	}
	check.Equal(t, "outbox rows of order "+o.ID, l.number(t, "SELECT COUNT(*) FROM releases WHERE order_id = ?", o.ID),
		releases)

	kept := l.number(t, "SELECT COALESCE(SUM(amount), 0) FROM payments WHERE order_id = ? AND status = 'succeeded'",
		o.ID) -
		l.number(t, "SELECT COALESCE(SUM(amount), 0) FROM refunds WHERE order_id = ?", o.ID)
	var owed int64
	if o.Status == model.OrderPaid || o.Status == model.OrderRedeemed {
		owed = o.Price
	}
	check.That(t, kept == owed, "order %s, %s: %d of money is kept, want %d: %v", o.ID, o.Status, kept, owed, steps)
	return live
}

// TestMovesWithoutAnAnswer: COMMIT or its answer is lost; the same call decides, and nothing happens twice.
func TestMovesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]verdict{"not applied": cutBefore, "applied": cutAfter} {
		for what, move := range map[string]int{"paid": 0, "canceled": 2, "expired": 4, "redeemed": 5, "refunded": 6, "refunded used": usedUp, "refunded outside": outside, "paid undone": undone, "refunded again": again, "refunded by alice": withdrawn, "paid by boss": cashed} {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				near := lifeOf(newAsync(t, stores()[0]))
				v := near.voucher(t, model.VoucherFields{Stock: 1, Withdrawal: model.Window(time.Hour)})
				c := contested{order: near.bought(t, v.ID, "alice"), code: newCode(t)}
				c.payments = []model.Payment{near.started(t, c.order)}
				if move >= 5 && move != again && move != cashed {
					pays := map[bool]int{true: cashed}[move == outside]
					check.Must(t, check.ErrorOf(near.try(t.Context(), t, c, pays)))
				}
				if move == usedUp || move == undone {
					check.Must(t, check.ErrorOf(near.try(t.Context(), t, c, 5)))
				}
				near.lapse(t, c.order)
				if move == again { // money that came late could not be given back
					check.Must(t, check.ErrorOf(near.orders.Expire(t.Context(), []string{c.order.ID})))
					receipt := check.Value(near.payments.Settle(t.Context(), money(t, c.payments[0])))(t)
					check.Must(t, near.refunds.GiveUp(t.Context(), receipt.Refund.ID, "the account is closed"))
				}
				far := lifeOf(near.through(t, onceOn("COMMIT", func(*wire) verdict { return lost })))
				changed := check.Value(far.try(t.Context(), t, c, move))(t)
				steps := near.steps(t, c.order.ID)
				check.That(t, changed && strings.HasPrefix(steps[len(steps)-1], strings.NewReplacer(" again", "", " used", "", " outside", "", " undone", "").Replace(what)),
					"changed %v: %v", changed, steps)
				live := int64(1)
				if move == 2 || move == 4 || move >= 6 && move < undone {
					live = 0
				}
				near.balanced(t, v.ID, live)
				check.Equal(t, "outbox rows", int64(len(near.outbox(t))), 1-live)
				refunds := map[bool]int64{true: 1, false: 0}[move >= 6 && move < undone]
				check.Equal(t, "refunds", near.number(t, "SELECT COUNT(*) FROM refunds"), refunds)
				check.Equal(t, "pending ones", near.number(t, "SELECT COUNT(*) FROM refunds WHERE status IN ('pending', 'outside')"),
					refunds)
				logged := map[bool]int64{true: 1, false: 0}[move >= 5 && move != withdrawn]
				if move == usedUp || move == outside || move == undone {
					logged++
				}
				check.Equal(t, "the log", near.number(t, "SELECT COUNT(*) FROM admin_log WHERE actor = 'boss'"), logged)
			})
		}
	}
}

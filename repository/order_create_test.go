package repository_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestOneOrder(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 2)
		asked := order(t, v.ID, "alice")
		got := f.place(t, asked)
		check.Must(t, got.Err)
		o := got.Order
		check.That(t, got.Created && o.ID == asked.ID && o.Status == model.OrderUnpaid && o.Price == 1000 &&
			o.Currency == "CNY" && o.UserID == "alice" && o.VoucherID == v.ID, "outcome %+v", got)
		check.That(t, o.ExpiresAt != nil && o.ExpiresAt.Equal(o.CreatedAt.Add(paymentWindow)) && aboutNow(o.CreatedAt),
			"created %s, expires %v", o.CreatedAt, o.ExpiresAt)
		read := check.Value(f.orders.Get(t.Context(), o.ID))(t)
		check.That(t, read.CreatedAt.Equal(o.CreatedAt) && read.ExpiresAt.Equal(*o.ExpiresAt) &&
			read.Price == o.Price && read.Status == o.Status, "read %+v, want %+v", read, o)
		f.balanced(t, v.ID, 1)

		// The same id again is the same row, also once it is closed.
		again := f.place(t, asked)
		check.That(t, again.Err == nil && !again.Created && again.Order.ID == o.ID &&
			again.Order.CreatedAt.Equal(o.CreatedAt), "again: %+v", again)
		other := f.place(t, order(t, v.ID, "alice"))
		wantCode(t, other.Err, model.CodeAlreadyOrdered)
		e, ok := errors.AsType[*model.Error](other.Err)
		check.That(t, ok && e.OrderID == o.ID && e.OrderStatus == model.OrderUnpaid, "refusal %+v", other.Err)
		f.exec(t, "UPDATE orders SET status = 'canceled' WHERE id = ?", o.ID)
		f.exec(t, "UPDATE vouchers SET remaining = remaining + 1, version = version + 1 WHERE id = ?", v.ID)
		closed := f.place(t, asked)
		check.That(t, closed.Err == nil && !closed.Created && closed.Order.Status == model.OrderCanceled,
			"a closed order came back as %+v", closed)
		fresh := f.place(t, order(t, v.ID, "alice"))
		check.Must(t, fresh.Err)
		f.balanced(t, v.ID, 1)
	})
}

// Buyers ask all the time while a short sale comes and goes. Orders are made only within it, on the clock that decides.
func TestWindowByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		begin := time.Now().Add(time.Hour)
		v := f.voucher(t, model.VoucherFields{Stock: 1 << 30, BeginAt: begin, EndAt: begin.Add(time.Hour)})
		refused, ok := errors.AsType[*model.Error](f.place(t, order(t, v.ID, "early")).Err)
		check.That(t, ok && refused.Code == model.CodeNotStarted && refused.BeginAt.Equal(v.BeginAt) &&
			refused.RetryAfter > 59*time.Minute, "an hour early: %+v", refused)
		var bought []model.Order
		// The sale gets longer if the machine was too busy to come in time.
		for length := 50 * time.Millisecond; len(bought) == 0; length *= 2 {
			begin := time.Now().Add(20 * time.Millisecond)
			end := begin.Add(length)
			v = check.Value(f.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{BeginAt: &begin, EndAt: &end}))(t)
			bought = f.buyUntilEnded(t, v)
		}
		for _, o := range bought {
			check.That(t, !o.CreatedAt.Before(v.BeginAt) && o.CreatedAt.Before(v.EndAt),
				"bought at %s, window %s to %s", o.CreatedAt, v.BeginAt, v.EndAt)
		}
		// An order admitted before is asked nothing any more.
		late := order(t, v.ID, "late")
		late.CreatedAt = v.BeginAt.Add(1234567 * time.Nanosecond)
		outcome := f.place(t, late)
		check.Must(t, outcome.Err)
		if !outcome.Order.CreatedAt.Equal(late.CreatedAt.Truncate(time.Microsecond)) ||
			outcome.Order.ExpiresAt.Before(v.EndAt.Add(paymentWindow)) {
			t.Errorf("admitted at %s: %+v", late.CreatedAt, outcome.Order)
		}
	})
}

// buyUntilEnded checks too that refusals come in order, and that the database dates the orders.
func (f *fixture) buyUntilEnded(t *testing.T, v model.Voucher) (bought []model.Order) {
	t.Helper()
	for ended := 0; ended < 3; {
		before := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		outcome := f.place(t, order(t, v.ID, newID(t)))
		after := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		switch {
		case outcome.Err == nil:
			bought = append(bought, outcome.Order)
			if at := outcome.Order.CreatedAt; at.Before(before.ServerTime) || at.After(after.ServerTime) || ended > 0 {
				t.Errorf("created at %s, asked between %s and %s", at, before.ServerTime, after.ServerTime)
			}
		case model.CodeOf(outcome.Err) == model.CodeEnded:
			ended++
		case model.CodeOf(outcome.Err) != model.CodeNotStarted || len(bought) > 0 || ended > 0:
			t.Errorf("after %d sales: %v", len(bought), outcome.Err)
		}
	}
	return bought
}

// blocked tells whether a statement that names an id waits for a row.
func (f *fixture) blocked(t testing.TB, id string) bool {
	t.Helper()
	return testserver.Waiting(t, f.db.SQL(), id)
}

func (f *fixture) begin(t testing.TB) *sql.Tx {
	t.Helper()
	tx := check.Value(f.db.SQL().BeginTx(t.Context(), nil))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func execTx(t testing.TB, tx *sql.Tx, statement string, args ...any) {
	t.Helper()
	check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), statement, args...)))
}

// createLater creates orders meanwhile. An error becomes the outcome of each.
func (f *fixture) createLater(t testing.TB, orders ...model.Order) <-chan []model.Outcome {
	t.Helper()
	done := make(chan []model.Outcome, 1)
	go func() {
		outcomes, err := f.orders.CreateOrders(t.Context(), orders)
		if err != nil {
			t.Error(err)
			outcomes = make([]model.Outcome, len(orders))
			for i := range outcomes {
				outcomes[i].Err = err
			}
		}
		done <- outcomes
	}()
	return done
}

const insertLive = `INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at)
	VALUES (?, ?, ?, 'unpaid', 1, 'CNY', NOW(6))`

// A row that was not committed at the reading is there at the INSERT (1062). The unit goes back, and the row is found.
func TestForcedDuplicate(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		for _, same := range []string{"user", "id"} {
			t.Run(string(strategy)+"/"+same, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, store{dialect: "mysql", strategy: strategy})
				v := f.onSale(t, 5)
				asked := order(t, v.ID, "alice")
				existing := asked.ID
				if same == "user" {
					existing = model.OrderID(newID(t), v.ID)
				}
				tx := f.begin(t)
				execTx(t, tx, insertLive, existing, v.ID, "alice")
				done := f.createLater(t, asked)
				check.Eventually(t, "the INSERT waits for the other row", func() bool { return f.blocked(t, asked.ID) })
				check.Must(t, tx.Commit())
				outcome := (<-done)[0]
				if same == "id" {
					check.That(t, outcome.Err == nil && !outcome.Created && outcome.Order.Price == 1,
						"outcome %+v, want the row that was there", outcome)
				} else if e, ok := errors.AsType[*model.Error](outcome.Err); !ok || e.OrderID != existing {
					t.Errorf("outcome %+v, want ALREADY_ORDERED with %s", outcome, existing)
				}
				check.Equal(t, "what remains, as the row was not ours",
					f.number(t, "SELECT remaining FROM vouchers WHERE id = ?", v.ID), 5)
			})
		}
	}
}

func TestForcedDeadlock(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		f := newFixture(t, store{dialect: "mysql", strategy: strategy})
		a, b := f.onSale(t, 5), f.onSale(t, 5) // a's id sorts first
		tx := f.begin(t)
		// The heavier transaction survives: InnoDB counts what it has changed.
		for i := range 20 {
			execTx(t, tx, insertLive, model.OrderID(newID(t), "elsewhere"), "elsewhere", user(i))
		}
		execTx(t, tx, "UPDATE vouchers SET version = version + 1 WHERE id = ?", b.ID)
		asked := []model.Order{order(t, b.ID, "alice"), order(t, a.ID, "alice")}
		done := f.createLater(t, asked...)
		check.Eventually(t, "the batch has a and waits for b", func() bool { return f.blocked(t, b.ID) })
		execTx(t, tx, "UPDATE vouchers SET version = version + 1 WHERE id = ?", a.ID)
		check.Must(t, tx.Commit())
		for _, outcome := range <-done {
			check.That(t, outcome.Err == nil && outcome.Created, "outcome %+v", outcome)
		}
		f.balanced(t, a.ID, 1)
		f.balanced(t, b.ID, 1)
	})
}

// A transaction holds a row longer than one lock wait (1205). Only its voucher is named, and no other stays locked.
func TestLockWait(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		f := newFixture(t, store{dialect: "mysql", strategy: strategy})
		vouchers := []model.Voucher{f.onSale(t, 5), f.onSale(t, 5), f.onSale(t, 5)}
		slices.SortFunc(vouchers, func(a, b model.Voucher) int { return strings.Compare(a.ID, b.ID) })
		held := vouchers[1].ID
		tx := f.begin(t)
		execTx(t, tx, "UPDATE vouchers SET version = version + 1 WHERE id = ?", held)
		asked := []model.Order{
			order(t, vouchers[0].ID, "alice"), order(t, held, "alice"),
			order(t, vouchers[2].ID, "alice"),
		}
		err := check.ErrorOf(f.hasty(t).orders.CreateOrders(t.Context(), asked))
		wantCode(t, err, model.CodeUnavailable)
		if named, ok := errors.AsType[*model.HeldError](err); !ok || named.VoucherID != held {
			t.Errorf("%v does not name voucher %s", err, held)
		}
		check.That(t, !errors.Is(err, model.ErrUnknownOutcome), "%v: nothing was sent, so nothing is unknown", err)
		for _, o := range []model.Order{asked[0], asked[2]} {
			if outcome := f.create(t, o)[0]; !outcome.Created {
				t.Errorf("alone: %+v", outcome)
			}
		}
		later := f.createLater(t, asked[1])
		check.Eventually(t, "it waits for the row", func() bool { return f.blocked(t, held) })
		check.Must(t, tx.Rollback())
		if outcome := (<-later)[0]; !outcome.Created || outcome.Waited <= 0 {
			t.Errorf("a row that comes free in time: %+v", outcome)
		}
		for _, v := range vouchers {
			f.balanced(t, v.ID, 1)
		}

		f.switchTo(t, model.ModeAsync)
		f.opened(t, vouchers[0].ID)
		f.opened(t, held)
		tx = f.begin(t)
		execTx(t, tx, "UPDATE vouchers SET version = version + 1 WHERE id = ?", held)
		queued := []model.Reservation{reservation(t, vouchers[0].ID, "bob", 1, 1), reservation(t, held, "bob", 1, 1)}
		worker := f.hasty(t)
		worker.asIn(t, model.ModeAsync)
		err = check.ErrorOf(worker.orders.Persist(t.Context(), queued))
		if named, ok := errors.AsType[*model.HeldError](err); !ok || named.VoucherID != held {
			t.Errorf("%v does not name voucher %s to the worker", err, held)
		}
		check.Must(t, tx.Rollback())

		drawn := lotteryOf(lifeOf(f)).toDraw(t, 1).ID
		tx = f.begin(t)
		execTx(t, tx, "UPDATE draws SET entries = entries + 1 WHERE voucher_id = ?", drawn)
		_, err = lotteryOf(lifeOf(f.hasty(t))).draws.Enter(t.Context(), []model.Entering{{VoucherID: drawn, UserID: "bob"}})
		wantCode(t, err, model.CodeUnavailable)
		if named, ok := errors.AsType[*model.HeldError](err); !ok || named.VoucherID != drawn {
			t.Errorf("%v does not name the draw %s", err, drawn)
		}
		check.Must(t, tx.Rollback())
	})
}

func TestBatch(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		one, two := f.onSale(t, 1), f.onSale(t, 10)
		draft := f.voucher(t, model.VoucherFields{Stock: 1, State: model.VoucherDraft})
		first := order(t, two.ID, "alice")
		stranger := order(t, two.ID, "mallory")
		stranger.ID = first.ID
		asked := []model.Order{
			first, first, order(t, two.ID, "alice"), stranger,
			order(t, one.ID, "alice"), order(t, one.ID, "bob"),
			order(t, "nosuchvoucher", "alice"), order(t, draft.ID, "alice"),
			order(t, two.ID, "Bób"), order(t, two.ID, "bob "),
			{ID: "no id!", VoucherID: two.ID, UserID: "bob"},
			order(t, two.ID, "bob"),
		}
		want := []model.Code{
			"", "", model.CodeAlreadyOrdered, model.CodeConflict,
			"", model.CodeSoldOut,
			model.CodeNotFound, model.CodeNotFound,
			model.CodeValidation, model.CodeValidation, model.CodeValidation,
			"",
		}
		for i, outcome := range f.create(t, asked...) {
			if want[i] == "" {
				check.That(t, outcome.Err == nil && outcome.Created == (i != 1) && outcome.Order.ID == asked[i].ID,
					"%d: %+v", i, outcome)
				continue
			}
			check.That(t, !outcome.Created && outcome.Err != nil && model.CodeOf(outcome.Err) == want[i],
				"%d: %+v, want %s", i, outcome, want[i])
		}
		f.balanced(t, one.ID, 1)
		f.balanced(t, two.ID, 2)
		none, err := f.orders.CreateOrders(t.Context(), nil)
		check.That(t, err == nil && len(none) == 0, "an empty batch: %v, %v", none, err)
	})
}

func TestLargeBatch(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		const size, units = 1300, 1203 // an INSERT carries 500
		v := f.onSale(t, units)
		var asked []model.Order
		for i := range size {
			asked = append(asked, order(t, v.ID, user(i)))
		}
		for i, outcome := range f.create(t, asked...) {
			check.Need(t, outcome.Created == (i < units), "order %d: %+v", i, outcome)
		}
		f.balanced(t, v.ID, units)
	})
}

// TestIDsAreComparedByteForByte: users that some collations call equal.
func TestIDsAreComparedByteForByte(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 10)
		names := []string{"Bob", "bob", "BOB", "b.ob", "b:ob", "b_ob", "b-ob"}
		var made []model.Order
		for _, name := range names {
			outcome := f.place(t, order(t, v.ID, name))
			check.Must(t, outcome.Err)
			made = append(made, outcome.Order)
		}
		f.balanced(t, v.ID, int64(len(names)))
		for i, name := range names {
			page := check.Value(f.orders.List(t.Context(), model.OrderQuery{UserID: name}))(t)
			check.That(t, len(page.Items) == 1 && page.Items[0].ID == made[i].ID, "orders of %s: %+v", name, page.Items)
		}
		upper := model.OrderID("UPPER", v.ID)
		o := order(t, v.ID, "last")
		o.ID = upper
		check.Must(t, f.place(t, o).Err)
		for _, id := range []string{model.OrderID("upper", v.ID), upper + " ", "Bób", ""} {
			wantCode(t, check.ErrorOf(f.orders.Get(t.Context(), id)), model.CodeNotFound)
		}
		for _, odd := range []string{"Bób", "bob "} { // what the schema itself says
			_, err := f.db.SQL().ExecContext(t.Context(), "UPDATE orders SET user_id = ? WHERE id = ?", odd, upper)
			check.That(t, f.store.dialect != "mysql" || odd != "Bób" || err != nil, "the column took %q", odd)
		}
	})
}

func TestConstraints(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
		for name, statement := range map[string]string{
			"remaining below zero":  "UPDATE vouchers SET remaining = -1",
			"remaining above stock": "UPDATE vouchers SET remaining = stock + 1",
			"stock below remaining": "UPDATE vouchers SET stock = remaining - 1",
			"empty window":          "UPDATE vouchers SET end_at = begin_at",
			"negative price":        "UPDATE vouchers SET price = -1",
			"second live order": "INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at) " +
				"SELECT 'x', voucher_id, user_id, 'paid', price, currency, created_at FROM orders",
			"second row of an id": "INSERT INTO orders (id, voucher_id, user_id, status, price, currency, created_at) " +
				"SELECT id, voucher_id, 'eve', 'paid', price, currency, created_at FROM orders",
			"slot written": "UPDATE orders SET slot = 7",
		} {
			if _, err := f.db.SQL().ExecContext(t.Context(), statement); err == nil {
				t.Errorf("%s: accepted", name)
			}
		}
		if f.store.dialect == "mysql" {
			for name, statement := range map[string]string{
				"strict mode": "UPDATE vouchers SET title = REPEAT('x', 201)",
				"bad status":  "UPDATE orders SET status = 'a status that is too long'",
			} {
				if _, err := f.db.SQL().ExecContext(t.Context(), statement); err == nil {
					t.Errorf("%s: accepted", name)
				}
			}
		}
		f.balanced(t, v.ID, 1)
	})
}

// An order that costs nothing is paid, with its code, in the transaction that makes it, whoever it is made for. A server
// that makes no codes makes none, and loses none.
func TestFreeOrders(t *testing.T) {
	t.Parallel()
	overModes(t, func(t *testing.T, l life, _ model.OrderMode) {
		v := l.voucher(t, model.VoucherFields{Title: title, Stock: 2, Waitlist: true})
		asked, promised := order(t, v.ID, "alice"), reservation(t, v.ID, "bob", 1, 1)
		promised.Price = 0
		wantCode(t, l.place(t, asked).Err, model.CodeUnavailable)
		wantCode(t, l.persist(t, promised)[0].Err, model.CodeUnavailable)
		l.balanced(t, v.ID, 0)

		codes := map[string]model.SealedCode{}
		l.db.Codes = func(orderID string) model.SealedCode {
			codes[orderID] = newCode(t)
			return codes[orderID]
		}
		free := func(o model.Order, told ...string) {
			t.Helper()
			row := check.Value(l.orders.Get(t.Context(), o.ID))(t)
			check.That(t, row.Status == model.OrderPaid && row.ExpiresAt == nil && row.PaidAt != nil &&
				row.PaidAt.Equal(*row.UnpaidAt) && row.SealedCode == string(codes[o.ID].Sealed), "row %+v", row)
			check.That(t, slices.Equal(l.steps(t, o.ID), told), "history %v, want %v", l.steps(t, o.ID), told)
			_, _, err := l.cancel(t.Context(), o.UserID, o.ID)
			wantIllegal(t, err, model.OrderPaid)
			wantIllegal(t, errorOf2(l.payments.Start(t.Context(), o.ID, o.UserID, newID(t))), model.OrderPaid)
		}
		made := l.place(t, asked)
		free(made.Order, "paid by alice")
		check.Equal(t, "the code when asked again", l.place(t, asked).Order.SealedCode, made.Order.SealedCode)
		free(l.persist(t, promised)[0].Order, "processing by bob", "paid by system")
		late := reservation(t, v.ID, "dave", 1, 2)
		late.Price = 0
		l.wantFailed(t, late, l.persist(t, late)[0], model.ReasonSoldOut)

		l.joins(t, v.ID, "carl")
		refund := l.refunded(t, made.Order.ID)
		check.That(t, refund.Status == model.RefundDone && refund.Amount == 0 && refund.ClosedAt != nil, "%+v", refund)
		check.Equal(t, "refunds to be made", len(check.Value(l.refunds.Due(t.Context(), 9))(t)), 0)
		heir := l.owns(t, v.ID, "carl")
		free(heir, "paid by carl")
		used := check.Value(l.orders.Redeem(t.Context(), codes[heir.ID].Hash, atTill("boss")))(t)
		check.Equal(t, "whose code was used", used.ID, heir.ID)
		l.balanced(t, v.ID, 2)

		drawn := l.voucher(t, model.VoucherFields{Title: title, Stock: 1, Allocation: model.ByDraw})
		of := lotteryOf(l)
		check.Must(t, check.ErrorOf(of.enters(t, drawn.ID, "alice")))
		of.over(t, drawn.ID)
		of.drawn(t, drawn.ID, 9, 9)
		free(l.owns(t, drawn.ID, "alice"), "paid by alice")
	})
}

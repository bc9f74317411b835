package repository_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"seckill/model"
)

// blocked tells whether a statement that names an id has been running for so
// long that it must be waiting for a row. (innodb_trx would say so exactly, but
// shows a copy that is renewed only when nobody has looked for 100 ms.)
func (f *fixture) blocked(t testing.TB, id string) bool {
	t.Helper()
	return f.number(t, `SELECT COUNT(*) FROM information_schema.processlist
		WHERE command = 'Query' AND time_ms > 50 AND id <> CONNECTION_ID() AND info LIKE ?`, "%"+id+"%") > 0
}

// begin opens a transaction of somebody else.
func (f *fixture) begin(t testing.TB) *sql.Tx {
	t.Helper()
	tx, err := f.db.SQL().BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func execTx(t testing.TB, tx *sql.Tx, statement string, args ...any) {
	t.Helper()
	_, err := tx.ExecContext(t.Context(), statement, args...)
	must(t, err)
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

// TestForcedDuplicate: a row that was not committed when existing orders were
// read is there by the time of the INSERT (1062). The unit goes back with the
// transaction, and the next reading finds the row.
func TestForcedDuplicate(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		for _, same := range []string{"user", "id"} {
			t.Run(string(strategy)+"/"+same, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, store{"mysql", strategy})
				v := f.onSale(t, 5)
				asked := order(t, v.ID, "alice")
				existing := asked.ID
				if same == "user" {
					existing = model.OrderID(newID(t), v.ID)
				}
				tx := f.begin(t)
				execTx(t, tx, insertLive, existing, v.ID, "alice")
				done := f.createLater(t, asked)
				eventually(t, "the INSERT waits for the other row", func() bool { return f.blocked(t, asked.ID) })
				must(t, tx.Commit())
				outcome := (<-done)[0]
				if same == "id" {
					if outcome.Err != nil || outcome.Created || outcome.Order.Price != 1 {
						t.Errorf("outcome %+v, want the row that was there", outcome)
					}
				} else if e, ok := errors.AsType[*model.Error](outcome.Err); !ok || e.OrderID != existing {
					t.Errorf("outcome %+v, want ALREADY_ORDERED with %s", outcome, existing)
				}
				if left := f.number(t, "SELECT remaining FROM vouchers WHERE id = ?", v.ID); left != 5 {
					t.Errorf("%d remain, want all 5: the row was not ours", left)
				}
			})
		}
	}
}

// TestForcedDeadlock makes the batch the victim of a deadlock (1213).
func TestForcedDeadlock(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, store{"mysql", strategy})
			a, b := f.onSale(t, 5), f.onSale(t, 5) // a's id sorts first
			tx := f.begin(t)
			// The heavier transaction survives: InnoDB counts what it has changed.
			for i := range 20 {
				execTx(t, tx, insertLive, model.OrderID(newID(t), "elsewhere"), "elsewhere", user(i))
			}
			execTx(t, tx, "UPDATE vouchers SET version = version + 1 WHERE id = ?", b.ID)
			asked := []model.Order{order(t, b.ID, "alice"), order(t, a.ID, "alice")}
			done := f.createLater(t, asked...)
			eventually(t, "the batch has a and waits for b", func() bool { return f.blocked(t, b.ID) })
			execTx(t, tx, "UPDATE vouchers SET version = version + 1 WHERE id = ?", a.ID)
			must(t, tx.Commit())
			for _, outcome := range <-done {
				if outcome.Err != nil || !outcome.Created {
					t.Errorf("outcome %+v", outcome)
				}
			}
			f.balanced(t, a.ID, 1)
			f.balanced(t, b.ID, 1)
		})
	}
}

// TestLockWait: somebody holds the voucher's row longer than one lock wait (1205).
// The batch waits again within its budget; when the row never comes free, the
// answer is UNAVAILABLE within it.
func TestLockWait(t *testing.T) {
	t.Parallel()
	type wait struct {
		f    *fixture
		v    model.Voucher
		hold time.Duration
	}
	var waits []wait
	for _, strategy := range mysqlStrategies() {
		f := newFixture(t, store{"mysql", strategy})
		for _, hold := range []time.Duration{3300 * time.Millisecond, time.Hour} {
			waits = append(waits, wait{f, f.onSale(t, 5), hold})
		}
	}
	volley(len(waits), func(i int) { // at once, because all they do is wait
		w := waits[i]
		tx := w.f.begin(t)
		execTx(t, tx, "UPDATE vouchers SET version = version + 1 WHERE id = ?", w.v.ID)
		timer := time.AfterFunc(w.hold, func() { _ = tx.Rollback() })
		defer timer.Stop()
		asked := []model.Order{order(t, w.v.ID, "alice")}
		within(t, longestAnswer, func(ctx context.Context) {
			outcomes, err := w.f.orders.CreateOrders(ctx, asked)
			if w.hold < longestAnswer {
				if err != nil || !outcomes[0].Created {
					t.Errorf("%s: outcome %+v, %v", w.f.store, outcomes, err)
				}
				return
			}
			wantCode(t, err, model.CodeUnavailable)
			if errors.Is(err, model.ErrUnknownOutcome) {
				t.Errorf("%v: nothing was sent, so nothing is unknown", err)
			}
		})
	})
	for _, w := range waits {
		live := int64(0)
		if w.hold < longestAnswer {
			live = 1
		}
		w.f.balanced(t, w.v.ID, live)
	}
}

// TestBatch: refusals and orders of several vouchers side by side.
func TestBatch(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		one, two := f.onSale(t, 1), f.onSale(t, 10)
		draft := f.voucher(t, model.NewVoucher{
			Stock: 1, State: model.VoucherDraft,
			BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour),
		})
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
				if outcome.Err != nil || outcome.Created != (i != 1) || outcome.Order.ID != asked[i].ID {
					t.Errorf("%d: %+v", i, outcome)
				}
				continue
			}
			if outcome.Created || outcome.Err == nil || model.CodeOf(outcome.Err) != want[i] {
				t.Errorf("%d: %+v, want %s", i, outcome, want[i])
			}
		}
		f.balanced(t, one.ID, 1)
		f.balanced(t, two.ID, 2)
		if none, err := f.orders.CreateOrders(t.Context(), nil); err != nil || len(none) != 0 {
			t.Errorf("an empty batch: %v, %v", none, err)
		}
	})
}

// TestLargeBatch needs more rows than one INSERT carries.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		const size, units = 1300, 1203
		v := f.onSale(t, units)
		var asked []model.Order
		for i := range size {
			asked = append(asked, order(t, v.ID, user(i)))
		}
		for i, outcome := range f.create(t, asked...) {
			if outcome.Created != (i < units) {
				t.Fatalf("order %d: %+v", i, outcome)
			}
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
			must(t, outcome.Err)
			made = append(made, outcome.Order)
		}
		f.balanced(t, v.ID, int64(len(names)))
		for i, name := range names {
			page, err := f.orders.List(t.Context(), model.OrderQuery{UserID: name})
			must(t, err)
			if len(page.Items) != 1 || page.Items[0].ID != made[i].ID {
				t.Errorf("orders of %s: %+v", name, page.Items)
			}
		}
		upper := model.OrderID("UPPER", v.ID)
		o := order(t, v.ID, "last")
		o.ID = upper
		must(t, f.place(t, o).Err)
		for _, id := range []string{model.OrderID("upper", v.ID), upper + " ", "Bób", ""} {
			_, err := f.orders.Get(t.Context(), id)
			wantCode(t, err, model.CodeNotFound)
		}
		for _, odd := range []string{"Bób", "bob "} { // what the schema itself says
			_, err := f.db.SQL().ExecContext(t.Context(), "UPDATE orders SET user_id = ? WHERE id = ?", odd, upper)
			if f.store.dialect == "mysql" && odd == "Bób" && err == nil {
				t.Errorf("the column took %q", odd)
			}
		}
	})
}

// TestConstraints are really there, whatever the code does.
func TestConstraints(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		must(t, f.place(t, order(t, v.ID, "alice")).Err)
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

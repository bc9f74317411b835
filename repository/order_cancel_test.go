package repository_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"seckill/model"
)

// TestCancel: the unit is on sale again, once, and the buyer may buy again.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.OrderMode{model.ModeSync, model.ModeAsync} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			overDialects(t, func(t *testing.T, f *fixture) {
				_, err := f.modes.Adopt(t.Context(), mode)
				must(t, err)
				f.asIn(t, mode)
				v := f.onSale(t, 1)
				o := f.place(t, order(t, v.ID, "alice")).Order
				for n := range 3 {
					got, changed, err := f.orders.Cancel(t.Context(), "alice", o.ID)
					must(t, err)
					if changed != (n == 0) || got.Status != model.OrderCanceled || got.ClosedAt == nil || time.Since(*got.ClosedAt).Abs() > time.Minute || got.Price != o.Price {
						t.Errorf("%d: changed %v, %+v", n, changed, got)
					}
					f.balanced(t, v.ID, 0)
				}
				if list := f.outbox(t); (len(list) == 1) != (mode == model.ModeAsync) || len(list) > 1 {
					t.Errorf("outbox %v", list)
				}
				detail, err := f.orders.Detail(t.Context(), o.ID)
				must(t, err)
				if h := detail.History; len(h) != 2 || h[1].To != model.OrderCanceled || h[1].From == nil || *h[1].From != model.OrderUnpaid ||
					h[1].By != "alice" || !h[1].At.Equal(*detail.ClosedAt) || h[0].From != nil || h[0].To != model.OrderUnpaid {
					t.Errorf("history %+v", h)
				}
				must(t, f.place(t, order(t, v.ID, "alice")).Err)
				f.balanced(t, v.ID, 1)
			})
		})
	}
}

// TestCancelRefused: only what is unpaid, and only by its buyer.
func TestCancelRefused(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		o := f.place(t, order(t, v.ID, "alice")).Order
		for _, who := range []string{"Alice", "bob", "alice ", ""} {
			_, _, err := f.orders.Cancel(t.Context(), who, o.ID)
			wantCode(t, err, model.CodeNotFound)
		}
		for _, id := range []string{"", "absent", "no id!", o.ID + " "} {
			_, _, err := f.orders.Cancel(t.Context(), "alice", id)
			wantCode(t, err, model.CodeNotFound)
		}
		f.balanced(t, v.ID, 1)
		for _, status := range []model.OrderStatus{model.OrderPaid, model.OrderExpired, model.OrderFailed, model.OrderRefunded} {
			f.exec(t, "UPDATE orders SET status = ? WHERE id = ?", status, o.ID)
			_, changed, err := f.orders.Cancel(t.Context(), "alice", o.ID)
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeIllegalState || e.OrderStatus != status || changed {
				t.Errorf("%s: %v", status, err)
			}
		}
		if left := f.number(t, "SELECT remaining FROM vouchers WHERE id = ?", v.ID); left != 4 {
			t.Errorf("%d remain", left)
		}
	})
}

// TestCancelAtOnce: one order canceled many times at once, while others buy what
// comes back.
func TestCancelAtOnce(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 1)
		o := f.place(t, order(t, v.ID, "alice")).Order
		var changes, bought atomic.Int32
		volley(20, func(i int) {
			if i%4 == 0 {
				outcomes, err := f.orders.CreateOrders(t.Context(), []model.Order{order(t, v.ID, user(i))})
				if err != nil {
					t.Error(err)
				} else if outcomes[0].Err == nil {
					bought.Add(1)
				}
				return
			}
			got, changed, err := f.orders.Cancel(t.Context(), "alice", o.ID)
			if err != nil || got.Status != model.OrderCanceled {
				t.Errorf("%+v, %v", got, err)
			}
			if changed {
				changes.Add(1)
			}
		})
		if changes.Load() != 1 || bought.Load() > 1 {
			t.Errorf("%d cancels, %d bought one unit", changes.Load(), bought.Load())
		}
		f.balanced(t, v.ID, int64(bought.Load()))
	})
}

// TestCancelWithoutAnAnswer: COMMIT or its answer is lost; the same call decides.
func TestCancelWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]verdict{"not applied": cutBefore, "applied": cutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near := newAsync(t, stores()[0])
			v := near.onSale(t, 1)
			o := near.place(t, order(t, v.ID, "alice")).Order
			far := near.through(t, onceOn("COMMIT", func(*wire) verdict { return lost }))
			got, changed, err := far.orders.Cancel(t.Context(), "alice", o.ID)
			must(t, err)
			if !changed || got.Status != model.OrderCanceled || len(near.outbox(t)) != 1 {
				t.Errorf("changed %v, %+v, outbox %v", changed, got, near.outbox(t))
			}
			near.balanced(t, v.ID, 0)
		})
	}
}

// TestUndecidedCancel: nothing gets through any more after the COMMIT. The call
// says that it does not know; a refusal that it meets is an answer.
func TestUndecidedCancel(t *testing.T) {
	t.Parallel()
	near := newAsync(t, stores()[0])
	v := near.onSale(t, 2)
	one, two := near.place(t, order(t, v.ID, "alice")).Order, near.place(t, order(t, v.ID, "bob")).Order
	var dead atomic.Bool
	silent := near.through(t, func(_ *wire, statement string) verdict {
		if statement == "COMMIT" || dead.Load() {
			dead.Store(true)
			return cutBefore
		}
		return pass
	})
	_, _, err := silent.orders.Cancel(ctxOf(t, 700*time.Millisecond), "alice", one.ID)
	wantCode(t, err, model.CodeUnavailable)
	if !errors.Is(err, model.ErrUnknownOutcome) {
		t.Errorf("error %v does not say that the outcome is unknown", err)
	}
	far := near.through(t, onceOn("COMMIT", func(*wire) verdict {
		go func() { // waits for the lost transaction's row lock
			_, _ = near.db.SQL().ExecContext(context.Background(), "UPDATE orders SET status = 'paid' WHERE id = ?", two.ID)
		}()
		eventually(t, "the payment waits", func() bool { return near.blocked(t, "'paid' WHERE id = ") })
		return cutBefore
	}))
	within(t, 3*time.Second, func(ctx context.Context) {
		_, _, err = far.orders.Cancel(ctx, "bob", two.ID)
		wantCode(t, err, model.CodeIllegalState)
	})
	near.balanced(t, v.ID, 2)
}

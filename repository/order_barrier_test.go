package repository_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"seckill/model"
	"seckill/repository"
)

// TestBarrierBetweenReadingAndTaking: a worker has read the voucher of a
// reservation that counts then. Before it takes the unit, a rebuild stores a
// barrier that lies before the reservation's message: it must fail, or the new
// copy, which does not know it, sells its unit again.
func TestBarrierBetweenReadingAndTaking(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			near := newAsync(t, store{"mysql", strategy})
			v := near.onSale(t, 5)
			near.opened(t, v.ID)
			if _, err := near.copies.Close(t.Context(), v.ID, 1); err != nil {
				t.Fatal(err)
			}
			stored := make(chan error, 1)
			early := atomic.Bool{}
			far := near.through(t, onceOn("UPDATE vouchers", func(*wire) verdict {
				go func() { stored <- near.copies.SetBarrier(context.Background(), v.ID, 2, 10) }()
				if strategy == repository.StockPessimistic { // the row is locked since the reading
					eventually(t, "the barrier waits for the row", func() bool { return near.blocked(t, "copy_barrier = 10") })
					return pass
				}
				must(t, <-stored)
				early.Store(true)
				return pass
			}))
			late := reservation(t, v.ID, "alice", 1, 11)
			got := far.persist(t, late)[0]
			if strategy == repository.StockPessimistic {
				must(t, <-stored)
				if got.Err != nil || got.Order.Status != model.OrderUnpaid {
					t.Errorf("taken before the barrier: %+v", got)
				}
				near.balanced(t, v.ID, 1)
				return
			}
			near.wantFailed(t, late, got, model.ReasonSuperseded)
			if !early.Load() {
				t.Error("the barrier was never stored in between")
			}
			near.balanced(t, v.ID, 0)
		})
	}
}

// through is one more instance, which speaks through a wire.
func (f *fixture) through(t testing.TB, judge func(*wire, string) verdict) *fixture {
	t.Helper()
	far := openFixture(t, f.store, repository.Options{DSN: newWire(t, f.options.DSN, judge)})
	far.asIn(t, model.ModeAsync)
	return far
}

// TestRefusedReservationIsTrue: between the reading that shows nothing left and
// the failed row a unit comes back. The order was promised, so it gets it.
func TestRefusedReservationIsTrue(t *testing.T) {
	t.Parallel()
	for _, strategy := range []repository.StockStrategy{repository.StockConditional, repository.StockOptimistic} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			near := newAsync(t, store{"mysql", strategy})
			v := near.onSale(t, 1)
			near.opened(t, v.ID)
			first := reservation(t, v.ID, "alice", 1, 1)
			near.persist(t, first)
			far := near.through(t, onceOn("UPDATE vouchers", func(*wire) verdict {
				_, _, err := near.orders.Cancel(context.Background(), "alice", first.ID)
				must(t, err)
				return pass
			}))
			if got := far.persist(t, reservation(t, v.ID, "bob", 1, 2))[0]; got.Order.Status != model.OrderUnpaid {
				t.Errorf("%+v, want the unit that came back", got)
			}
			near.balanced(t, v.ID, 1)
		})
	}
}

// TestPersistWithoutAnAnswer loses the COMMIT of a batch with an order and a
// refusal, or its answer: each is there once in the end.
func TestPersistWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]verdict{"not applied": cutBefore, "applied": cutAfter} {
		for _, strategy := range mysqlStrategies() {
			t.Run(name+"/"+string(strategy), func(t *testing.T) {
				t.Parallel()
				near := newAsync(t, store{"mysql", strategy})
				v := near.onSale(t, 1)
				near.opened(t, v.ID)
				far := near.through(t, onceOn("COMMIT", func(*wire) verdict { return lost }))
				one, two := reservation(t, v.ID, "alice", 1, 1), reservation(t, v.ID, "bob", 1, 1)
				got := far.persist(t, one, two)
				if !got[0].Created || got[0].Order.Status != model.OrderUnpaid || !got[1].Created {
					t.Errorf("outcomes %+v", got)
				}
				near.wantFailed(t, two, got[1], model.ReasonSoldOut)
				if list := near.outbox(t); len(list) != 1 {
					t.Errorf("outbox %v", list)
				}
				near.balanced(t, v.ID, 1)
			})
		}
	}
}

// TestModeGuard: an instance in another mode than the database takes no unit,
// whatever else it may write.
func TestModeGuard(t *testing.T) {
	t.Parallel()
	overAsync(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 1)
		f.opened(t, v.ID)
		f.asIn(t, model.ModeSync)
		refused := f.place(t, order(t, v.ID, "alice"))
		wantCode(t, refused.Err, model.CodeUnavailable)
		if !strings.Contains(refused.Err.Error(), "async") {
			t.Errorf("refusal %v does not say why", refused.Err)
		}
		f.asIn(t, model.ModeAsync)
		first := reservation(t, v.ID, "alice", 1, 1)
		f.persist(t, first)
		f.asIn(t, model.ModeSync)
		got := f.persist(t, first, reservation(t, v.ID, "bob", 1, 1), reservation(t, v.ID, "alice", 1, 1))
		if got[0].Err != nil || got[0].Order.Status != model.OrderUnpaid {
			t.Errorf("what is there was refused: %+v", got[0])
		}
		wantCode(t, got[1].Err, model.CodeUnavailable)
		f.wantFailed(t, reservationOf(got[2].Order), got[2], model.ReasonAlreadyOrdered)
		f.balanced(t, v.ID, 1)
	})
}

func reservationOf(o model.Order) model.Reservation { return model.Reservation{Order: o} }

// TestModeBetweenReadingAndTaking: the switch to another mode waits for whoever
// has read the mode and is about to take units; who comes later sees it.
func TestModeBetweenReadingAndTaking(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		for _, at := range []string{"UPDATE vouchers", "COMMIT"} {
			t.Run(string(strategy)+"/"+at, func(t *testing.T) {
				t.Parallel()
				near := newAsync(t, store{"mysql", strategy})
				v := near.onSale(t, 5)
				near.opened(t, v.ID)
				must(t, near.modes.BeginSwitch(t.Context(), model.ModeSync))
				var switched atomic.Bool
				done := make(chan error, 1)
				far := near.through(t, onceOn(at, func(*wire) verdict {
					go func() {
						err := near.modes.FinishSwitch(context.Background(), model.ModeSync)
						switched.Store(true)
						done <- err
					}()
					eventually(t, "the switch waits for the mode's row", func() bool { return near.blocked(t, "order_mode") })
					if switched.Load() {
						t.Error("the switch did not wait for the transaction under way")
					}
					return pass
				}))
				got := far.persist(t, reservation(t, v.ID, "alice", 1, 1))[0]
				if got.Err != nil || got.Order.Status != model.OrderUnpaid {
					t.Errorf("%+v", got)
				}
				must(t, <-done)
				wantCode(t, far.persist(t, reservation(t, v.ID, "bob", 1, 1))[0].Err, model.CodeUnavailable)
				near.balanced(t, v.ID, 1)
			})
		}
	}
}

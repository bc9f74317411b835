package repository_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func throughWire(t *testing.T, strategy model.StockStrategy, judge func(*wire, string) verdict) (near, far *fixture) {
	t.Helper()
	near = newFixture(t, store{dialect: "mysql", strategy: strategy})
	return near, near.wired(t, judge)
}

// COMMIT or its answer is lost, or refused with 1047: it may have happened. The same ids decide, and it counts once.
func TestCommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	commit := func(t *testing.T, lost verdict, times int32, strategy model.StockStrategy) {
		t.Helper()
		var commits atomic.Int32
		near, far := throughWire(t, strategy, func(_ *wire, statement string) verdict {
			if statement == "COMMIT" && commits.Add(1) <= times {
				return lost
			}
			return pass
		})
		v := near.onSale(t, 3)
		asked := []model.Order{order(t, v.ID, "alice"), order(t, v.ID, "bob")}
		for i, outcome := range far.create(t, asked...) {
			check.That(t, outcome.Err == nil && outcome.Created && outcome.Order.ID == asked[i].ID,
				"order %d: %+v", i, outcome)
		}
		check.That(t, commits.Swap(0) > 0, "no COMMIT was lost")
		near.balanced(t, v.ID, 2)
		_, changed, err := far.cancel(t.Context(), asked[0].UserID, asked[0].ID)
		check.That(t, err == nil && changed, "cancel: %v, %v", changed, err)
		near.balanced(t, v.ID, 1)
	}
	overLostCommits(t, func(t *testing.T, lost verdict, strategy model.StockStrategy) { commit(t, lost, 1, strategy) })
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		commit(t, refuse, 2, strategy)
		commit(t, denied, 2, strategy)
	})
}

// The COMMIT lands while the same ids are inserted again. Reading alone would have answered "not there".
func TestLateCommit(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		var commits atomic.Int32
		late := make(chan *wire, 1)
		near, far := throughWire(t, strategy, func(w *wire, statement string) verdict {
			if statement == "COMMIT" && commits.Add(1) == 1 {
				late <- w
				return later
			}
			return pass
		})
		v := near.onSale(t, 1) // the last unit: a second taking would show as SOLD_OUT
		outcomes := far.createLater(t, order(t, v.ID, "alice"))
		w := check.Receive(t, "a COMMIT", late)
		check.Eventually(t, "the repetition waits for the row that the late transaction holds",
			func() bool { return near.blocked(t, v.ID) })
		close(w.late)
		outcome := (<-outcomes)[0]
		check.That(t, outcome.Err == nil && outcome.Created, "outcome %+v", outcome)
		near.balanced(t, v.ID, 1)
	})
}

// The sale is paused after the COMMIT was lost. The order was admitted, so inserting it again must not ask.
func TestLostCommitIsDecidedByTheFirstAdmission(t *testing.T) {
	t.Parallel()
	near := newFixture(t, stores()[0])
	v := near.onSale(t, 1)
	far := near.wired(t, onceOn("COMMIT", func(*wire) verdict {
		go func() { // waits for the lost transaction's row lock
			paused := model.VoucherPaused
			_, _ = near.vouchers.Patch(context.Background(), v.ID, model.VoucherPatch{State: &paused})
		}()
		return cutBefore
	}))
	outcome := far.place(t, order(t, v.ID, "alice"))
	check.Must(t, outcome.Err)
	check.Eventually(t, "the sale is paused", func() bool {
		now, err := near.vouchers.Get(t.Context(), v.ID)
		return err == nil && now.State == model.VoucherPaused
	})
	wantCode(t, far.place(t, order(t, v.ID, "bob")).Err, model.CodePaused)
	near.balanced(t, v.ID, 1)
}

// Nothing, or only silence, follows COMMIT. The call ends with its context, not the driver, and does not know.
func TestUndecidedCommit(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *fixture, model.Order) error{
		"create": func(ctx context.Context, f *fixture, o model.Order) error {
			return check.ErrorOf(f.orders.CreateOrders(ctx, []model.Order{order(t, o.VoucherID, "bob")}))
		},
		"cancel": func(ctx context.Context, f *fixture, o model.Order) error {
			_, _, err := f.cancel(ctx, "alice", o.ID)
			return err
		},
	} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", silence ", silent), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				left := make(chan struct{})
				var cuts atomic.Int32
				near, far := throughWire(t, model.StockConditional, func(_ *wire, statement string) verdict {
					switch {
					case statement != "COMMIT" && cuts.Load() == 0:
						return pass
					case silent:
						cancel()
						<-left
						return pass
					case cuts.Add(1) == 2: // nor does a new connection get through
						cancel()
					}
					return cutBefore
				})
				v := near.onSale(t, 2)
				alices := near.place(t, order(t, v.ID, "alice")).Order
				err := call(ctx, far, alices)
				close(left)
				wantUnknown(t, err)
				check.That(t, ctx.Err() != nil, "it ended before its context")
				if !silent {
					near.balanced(t, v.ID, 1)
				}
			})
		}
	}
}

func TestChangeBetweenReadingAndTaking(t *testing.T) {
	t.Parallel()
	paused, price := model.VoucherPaused, int64(77)
	for _, strategy := range []model.StockStrategy{model.StockConditional, model.StockOptimistic} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			near := newFixture(t, store{dialect: "mysql", strategy: strategy})
			for name, test := range map[string]struct {
				units  int64
				change func(id string) error
				check  func(t *testing.T, outcomes []model.Outcome)
			}{
				"paused": {
					2, func(id string) error {
						_, err := near.vouchers.Patch(t.Context(), id, model.VoucherPatch{State: &paused})
						return err
					},
					func(t *testing.T, outcomes []model.Outcome) {
						wantCode(t, outcomes[0].Err, model.CodePaused)
					},
				},
				"dearer": {
					2, func(id string) error {
						_, err := near.vouchers.Patch(t.Context(), id, model.VoucherPatch{Price: &price})
						return err
					},
					func(t *testing.T, outcomes []model.Outcome) {
						check.Equal(t, "the price", outcomes[0].Order.Price, price)
					},
				},
				// There is no SOLD_OUT while units remain.
				"restocked": {
					1, func(id string) error {
						_, err := near.vouchers.ChangeStock(t.Context(), id, model.StockChange{Delta: new(int64(1))},
							model.Idempotency{})
						return err
					},
					func(t *testing.T, outcomes []model.Outcome) {
						check.Must(t, outcomes[0].Err)
						check.Must(t, outcomes[1].Err)
					},
				},
			} {
				for others := range 3 { // in the same transaction
					t.Run(fmt.Sprintf("%s beside %d", name, others), func(t *testing.T) {
						v := near.onSale(t, test.units)
						asked := []model.Order{order(t, v.ID, "alice"), order(t, v.ID, "bob")}
						for range others {
							asked = append(asked, order(t, near.onSale(t, 1).ID, "alice"))
						}
						instance := near.wired(t, onceOn("UPDATE vouchers", func(*wire) verdict {
							check.Must(t, test.change(v.ID))
							return pass
						}))
						outcomes := instance.create(t, asked...)
						test.check(t, outcomes)
						for n, outcome := range outcomes[2:] {
							check.Must(t, outcome.Err)
							near.balanced(t, asked[2+n].VoucherID, 1)
						}
					})
				}
			}
		})
	}
}

// The last unit goes just before its buyer's request reads the voucher: existing orders have to be read after that.
func TestWinnerNeverHearsSoldOut(t *testing.T) {
	t.Parallel()
	overMySQL(t, func(t *testing.T, strategy model.StockStrategy) {
		near := newFixture(t, store{dialect: "mysql", strategy: strategy})
		v := near.onSale(t, 1)
		won := order(t, v.ID, "alice")
		far := near.wired(t, onceOn("SELECT vouchers", func(*wire) verdict {
			_, err := near.orders.CreateOrders(context.Background(), []model.Order{won})
			check.That(t, err == nil, "%v", err)
			return pass
		}))
		outcomes := far.create(t, order(t, v.ID, "alice"), order(t, v.ID, "bob"))
		if e, ok := errors.AsType[*model.Error](outcomes[0].Err); !ok || e.Code != model.CodeAlreadyOrdered ||
			e.OrderID != won.ID {
			t.Errorf("the winner heard %v", outcomes[0].Err)
		}
		wantCode(t, outcomes[1].Err, model.CodeSoldOut)
		near.balanced(t, v.ID, 1)
	})
}

// A rebuild's barrier is stored before a worker takes the unit: the worker must fail, or the new copy sells it again.
func TestBarrierBetweenReadingAndTaking(t *testing.T) {
	t.Parallel()
	over(t, stores()[:3], newAsync, func(t *testing.T, near *fixture) {
		strategy := near.store.strategy
		v := near.onSale(t, 5)
		near.opened(t, v.ID)
		check.Must(t, check.ErrorOf(near.copies.Close(t.Context(), v.ID, 1, "")))
		stored := make(chan error, 1)
		early := atomic.Bool{}
		far := near.through(t, onceOn("UPDATE voucher", func(*wire) verdict {
			go func() { stored <- near.copies.SetBarrier(context.Background(), v.ID, 2, 10) }()
			if strategy == model.StockPessimistic { // the row is locked since the reading
				check.Eventually(t, "the barrier waits for the row",
					func() bool { return near.blocked(t, "copy_barrier = 10") })
				return pass
			}
			check.Must(t, <-stored)
			early.Store(true)
			return pass
		}))
		late := reservation(t, v.ID, "alice", 1, 11)
		got := far.persist(t, late)[0]
		if strategy == model.StockPessimistic {
			check.Must(t, <-stored)
			check.That(t, got.Err == nil && got.Order.Status == model.OrderUnpaid, "taken before the barrier: %+v", got)
			near.balanced(t, v.ID, 1)
			return
		}
		near.wantDropped(t, v.ID, late, got)
		check.That(t, early.Load(), "the barrier was never stored in between")
		near.balanced(t, v.ID, 0)
	})
}

func (f *fixture) through(t testing.TB, judge func(*wire, string) verdict) *fixture {
	t.Helper()
	far := f.wired(t, judge)
	far.asIn(t, model.ModeAsync)
	return far
}

// A unit comes back between the reading of an empty stock and the failed row. The promised order gets it.
func TestRefusedReservationIsTrue(t *testing.T) {
	t.Parallel()
	over(t, []store{stores()[0], stores()[2]}, newAsync, func(t *testing.T, near *fixture) {
		v := near.onSale(t, 1)
		near.opened(t, v.ID)
		first := reservation(t, v.ID, "alice", 1, 1)
		near.persist(t, first)
		far := near.through(t, onceOn("UPDATE vouchers", func(*wire) verdict {
			_, _, err := near.cancel(context.Background(), "alice", first.ID)
			check.Must(t, err)
			return pass
		}))
		got := far.persist(t, reservation(t, v.ID, "bob", 1, 2))[0]
		check.That(t, got.Order.Status == model.OrderUnpaid, "%+v, want the unit that came back", got)
		near.balanced(t, v.ID, 1)
	})
}

// The COMMIT of a batch with an order and a refusal, or its answer, is lost: each is there once in the end.
func TestPersistWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	overLostCommits(t, func(t *testing.T, lost verdict, strategy model.StockStrategy) {
		near := newAsync(t, store{dialect: "mysql", strategy: strategy})
		v := near.onSale(t, 1)
		near.opened(t, v.ID)
		far := near.through(t, onceOn("COMMIT", func(*wire) verdict { return lost }))
		one, two := reservation(t, v.ID, "alice", 1, 1), reservation(t, v.ID, "bob", 1, 1)
		got := far.persist(t, one, two)
		check.That(t, got[0].Created && got[0].Order.Status == model.OrderUnpaid && got[1].Created, "outcomes %+v", got)
		near.wantFailed(t, two, got[1], model.ReasonSoldOut)
		list := near.outbox(t)
		check.That(t, len(list) == 1, "outbox %v", list)
		near.balanced(t, v.ID, 1)
	})
}

// TestModeGuard: an instance in another mode than the database takes no unit, whatever else it may write.
func TestModeGuard(t *testing.T) {
	t.Parallel()
	overAsync(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 1)
		f.opened(t, v.ID)
		f.asIn(t, model.ModeSync)
		refused := f.place(t, order(t, v.ID, "alice"))
		wantCode(t, refused.Err, model.CodeUnavailable)
		check.That(t, strings.Contains(refused.Err.Error(), "async"), "refusal %v does not say why", refused.Err)
		f.asIn(t, model.ModeAsync)
		first := reservation(t, v.ID, "alice", 1, 1)
		f.persist(t, first)
		f.asIn(t, model.ModeSync)
		got := f.persist(t, first, reservation(t, v.ID, "bob", 1, 1), reservation(t, v.ID, "alice", 1, 1))
		check.That(t, got[0].Err == nil && got[0].Order.Status == model.OrderUnpaid,
			"what is there was refused: %+v", got[0])
		wantCode(t, got[1].Err, model.CodeUnavailable)
		f.wantFailed(t, reservationOf(got[2].Order), got[2], model.ReasonAlreadyOrdered)
		f.balanced(t, v.ID, 1)
	})
}

func reservationOf(o model.Order) model.Reservation { return model.Reservation{Order: o} }

// A change of the mode waits for a transaction that has read the mode and takes units; later ones see it.
func TestModeBetweenReadingAndTaking(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		for _, at := range []string{"UPDATE vouchers", "COMMIT"} {
			t.Run(string(strategy)+"/"+at, func(t *testing.T) {
				t.Parallel()
				near := newAsync(t, store{dialect: "mysql", strategy: strategy})
				v := near.onSale(t, 5)
				near.opened(t, v.ID)
				var changed atomic.Bool
				done := make(chan error, 1)
				far := near.through(t, onceOn(at, func(*wire) verdict {
					go func() {
						err := near.modes.Change(context.Background(), model.ModeSync)
						changed.Store(true)
						done <- err
					}()
					check.Eventually(t, "the change waits for the mode's row",
						func() bool { return near.blocked(t, "order_mode") })
					check.That(t, !changed.Load(), "the change did not wait for the transaction under way")
					return pass
				}))
				got := far.persist(t, reservation(t, v.ID, "alice", 1, 1))[0]
				check.That(t, got.Err == nil && got.Order.Status == model.OrderUnpaid, "%+v", got)
				check.Must(t, <-done)
				wantCode(t, far.persist(t, reservation(t, v.ID, "bob", 1, 1))[0].Err, model.CodeUnavailable)
				near.balanced(t, v.ID, 1)
			})
		}
	}
}

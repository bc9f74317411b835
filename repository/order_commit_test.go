package repository_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/model"
	"seckill/repository"
)

// throughWire is a fixture whose second instance, far, speaks through a wire.
func throughWire(t *testing.T, strategy repository.StockStrategy, judge func(*fixture) func(*wire, string) verdict) (near, far *fixture) {
	t.Helper()
	s := store{"mysql", strategy}
	near = newFixture(t, s)
	far = openFixture(t, s, repository.Options{DSN: newWire(t, near.options.DSN, judge(near))})
	return near, far
}

func mysqlStrategies() []repository.StockStrategy {
	return []repository.StockStrategy{repository.StockConditional, repository.StockPessimistic, repository.StockOptimistic}
}

// TestCommitWithoutAnAnswer loses COMMIT or its answer. The same ids decide,
// whatever became of it: one order, one unit, and it counts as created.
func TestCommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]verdict{"not applied": cutBefore, "applied": cutAfter} {
		for _, strategy := range mysqlStrategies() {
			t.Run(name+"/"+string(strategy), func(t *testing.T) {
				t.Parallel()
				var cuts atomic.Int32
				near, far := throughWire(t, strategy, func(*fixture) func(*wire, string) verdict {
					return func(_ *wire, statement string) verdict {
						if statement == "COMMIT" && cuts.Add(1) == 1 {
							return lost
						}
						return pass
					}
				})
				v := near.onSale(t, 3)
				asked := []model.Order{order(t, v.ID, "alice"), order(t, v.ID, "bob")}
				for i, outcome := range far.create(t, asked...) {
					if outcome.Err != nil || !outcome.Created || outcome.Order.ID != asked[i].ID {
						t.Errorf("order %d: %+v", i, outcome)
					}
				}
				if cuts.Load() == 0 {
					t.Error("no COMMIT was lost")
				}
				near.balanced(t, v.ID, 2)
			})
		}
	}
}

// TestLateCommit: the connection is gone, its COMMIT is still on the way, and
// lands while the same ids are being inserted again. Reading alone would have
// answered "not there".
func TestLateCommit(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			var commits, locking atomic.Int32
			near, far := throughWire(t, strategy, func(*fixture) func(*wire, string) verdict {
				return func(w *wire, statement string) verdict {
					switch {
					case statement == "COMMIT" && commits.Add(1) == 1:
						return later
					case commits.Load() == 1 && (strings.HasPrefix(statement, "UPDATE vouchers") || strings.HasSuffix(statement, "FOR UPDATE")):
						if locking.Add(1) == 1 {
							// The repetition is about to wait for the row that the late transaction holds.
							time.AfterFunc(100*time.Millisecond, func() { close(w.late) })
						}
					}
					return pass
				}
			})
			v := near.onSale(t, 1) // the last unit: a second taking would show as SOLD_OUT
			outcome := far.place(t, order(t, v.ID, "alice"))
			if outcome.Err != nil || !outcome.Created {
				t.Errorf("outcome %+v", outcome)
			}
			if locking.Load() == 0 {
				t.Error("the repetition never met the late transaction")
			}
			near.balanced(t, v.ID, 1)
		})
	}
}

// TestLostCommitIsDecidedByTheFirstAdmission: the sale is paused after the
// COMMIT was lost. The order was admitted, so inserting it again must not ask.
func TestLostCommitIsDecidedByTheFirstAdmission(t *testing.T) {
	t.Parallel()
	var voucher atomic.Value
	near, far := throughWire(t, repository.StockConditional, func(near *fixture) func(*wire, string) verdict {
		return onceOn("COMMIT", func(*wire) verdict {
			go func() { // waits for the lost transaction's row lock
				paused := model.VoucherPaused
				_, _ = near.vouchers.Patch(context.Background(), voucher.Load().(string), model.VoucherPatch{State: &paused})
			}()
			return cutBefore
		})
	})
	v := near.onSale(t, 1)
	voucher.Store(v.ID)
	outcome := far.place(t, order(t, v.ID, "alice"))
	must(t, outcome.Err)
	eventually(t, "the sale is paused", func() bool {
		now, err := near.vouchers.Get(t.Context(), v.ID)
		return err == nil && now.State == model.VoucherPaused
	})
	wantCode(t, far.place(t, order(t, v.ID, "bob")).Err, model.CodePaused)
	near.balanced(t, v.ID, 1)
}

// TestUndecidedCommit: nothing gets through any more. The call ends with its
// context and says that it does not know.
func TestUndecidedCommit(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	near, far := throughWire(t, repository.StockConditional, func(*fixture) func(*wire, string) verdict {
		return func(_ *wire, statement string) verdict {
			if statement == "COMMIT" || lost.Load() {
				lost.Store(true)
				return cutBefore
			}
			return pass
		}
	})
	v := near.onSale(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	within(t, 3*time.Second, func(context.Context) {
		_, err := far.orders.CreateOrders(ctx, []model.Order{order(t, v.ID, "alice")})
		wantCode(t, err, model.CodeUnavailable)
		if !errors.Is(err, model.ErrUnknownOutcome) {
			t.Errorf("error %v does not say that the outcome is unknown", err)
		}
	})
	near.balanced(t, v.ID, 0)
}

// TestSilentCommit: COMMIT is answered by silence. The caller leaves when its
// context ends, not when the driver gives up.
func TestSilentCommit(t *testing.T) {
	t.Parallel()
	near, far := throughWire(t, repository.StockConditional, func(*fixture) func(*wire, string) verdict {
		return onceOn("COMMIT", func(w *wire) verdict {
			select { // the wire's cleanup ends it
			case <-w.late:
			case <-time.After(3 * time.Second):
			}
			return pass
		})
	})
	v := near.onSale(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	within(t, 2*time.Second, func(context.Context) {
		_, err := far.orders.CreateOrders(ctx, []model.Order{order(t, v.ID, "alice")})
		if !errors.Is(err, model.ErrUnknownOutcome) {
			t.Errorf("error %v does not say that the outcome is unknown", err)
		}
	})
}

// TestChangeBetweenReadingAndTaking: the voucher changes after it was read and
// before its units are taken.
func TestChangeBetweenReadingAndTaking(t *testing.T) {
	t.Parallel()
	paused, price := model.VoucherPaused, int64(77)
	for _, strategy := range []repository.StockStrategy{repository.StockConditional, repository.StockOptimistic} {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			near := newFixture(t, store{"mysql", strategy})
			for name, test := range map[string]struct {
				change func(id string) error
				check  func(t *testing.T, outcomes []model.Outcome)
			}{
				"paused": {
					func(id string) error {
						_, err := near.vouchers.Patch(t.Context(), id, model.VoucherPatch{State: &paused})
						return err
					},
					func(t *testing.T, outcomes []model.Outcome) {
						wantCode(t, outcomes[0].Err, model.CodePaused)
					},
				},
				"dearer": {
					func(id string) error {
						_, err := near.vouchers.Patch(t.Context(), id, model.VoucherPatch{Price: &price})
						return err
					},
					func(t *testing.T, outcomes []model.Outcome) {
						if outcomes[0].Order.Price != price {
							t.Errorf("sold for %d, want %d", outcomes[0].Order.Price, price)
						}
					},
				},
				// Nobody may hear SOLD_OUT while units remain.
				"restocked": {
					func(id string) error {
						one := int64(1)
						_, err := near.vouchers.ChangeStock(t.Context(), id, model.StockChange{Delta: &one}, model.Idempotency{})
						return err
					},
					func(t *testing.T, outcomes []model.Outcome) {
						must(t, outcomes[0].Err)
						must(t, outcomes[1].Err)
					},
				},
			} {
				t.Run(name, func(t *testing.T) {
					v := near.onSale(t, 1)
					instance := openFixture(t, near.store, repository.Options{
						DSN: newWire(t, near.options.DSN, onceOn("UPDATE vouchers", func(*wire) verdict {
							must(t, test.change(v.ID))
							return pass
						})),
					})
					test.check(t, instance.create(t, order(t, v.ID, "alice"), order(t, v.ID, "bob")))
				})
			}
		})
	}
}

// TestWinnerNeverHearsSoldOut: the last unit goes while a request of its buyer is
// about to read the voucher. Had it read the existing orders before, it would
// see neither her order nor a unit.
func TestWinnerNeverHearsSoldOut(t *testing.T) {
	t.Parallel()
	for _, strategy := range mysqlStrategies() {
		t.Run(string(strategy), func(t *testing.T) {
			t.Parallel()
			near := newFixture(t, store{"mysql", strategy})
			v := near.onSale(t, 1)
			won := order(t, v.ID, "alice")
			far := openFixture(t, near.store, repository.Options{
				DSN: newWire(t, near.options.DSN, onceOn("SELECT vouchers", func(*wire) verdict {
					_, err := near.orders.CreateOrders(context.Background(), []model.Order{won})
					if err != nil {
						t.Error(err)
					}
					return pass
				})),
			})
			outcomes := far.create(t, order(t, v.ID, "alice"), order(t, v.ID, "bob"))
			if e, ok := errors.AsType[*model.Error](outcomes[0].Err); !ok || e.Code != model.CodeAlreadyOrdered || e.OrderID != won.ID {
				t.Errorf("the winner heard %v", outcomes[0].Err)
			}
			wantCode(t, outcomes[1].Err, model.CodeSoldOut)
			near.balanced(t, v.ID, 1)
		})
	}
}

// eventually waits for what other goroutines bring about.
func eventually(t testing.TB, what string, reached func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !reached() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		<-ticker.C
	}
}

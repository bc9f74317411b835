package sale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

func TestCancelPutsTheUnitOnSaleBeforeItAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var announced []string
		s := newHotShop(t, func(o *Deps, _ *AsyncDeps) {
			o.Announce = func(_ context.Context, id string) error { announced = append(announced, id); return nil }
		})
		s.sale.Set("stock", 1)
		placed := s.persist(t, "alice")
		s.refused(t, "bob", model.CodeSoldOut)
		s.refused(t, "bob", model.CodeSoldOut)
		for range 2 { // the second one changes nothing
			s.cancels(t, "alice", placed.ID)
			check.Equal(t, "vouchers announced", strings.Join(announced, " "), "v1")
		}
		check.Equal(t, "the outbox was told", slices.Contains(s.rows.noted, placed.ID), true)
		servicetest.Pass(time.Microsecond)
		s.buys(t, "bob")
		s.cancels(t, "alice", placed.ID)
		check.Equal(t, "bob's unit was given back with alice's", s.sale.Marks()["bob"] == "", false)
	})
}

// A transaction of cancellations holds its voucher's row, which those who buy need too.
func TestConcurrentCancellationsShareATransaction(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		var placed [10]model.Order
		for i := range placed {
			placed[i] = s.persist(t, fmt.Sprint("user", i))
		}
		check.Volley(len(placed), func(i int) { s.cancels(t, placed[i].UserID, placed[i].ID) })
		n := s.rows.cancels.Load()
		check.That(t, n == 1 || n == 2, "%d transactions for %d cancellations", n, len(placed))
	})
}

func TestCancelOutlivesItsClient(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.sale.Set("stock", 1)
		placed := s.persist(t, "alice")
		gone, hangUp := context.WithCancel(t.Context())
		time.AfterFunc(time.Nanosecond, hangUp)
		if order, err := s.Cancel(gone, "alice", placed.ID); err != nil || order.Status != model.OrderCanceled {
			t.Errorf("%+v, %v", order, err)
		}
		s.buys(t, "bob")
	})
}

type stuck struct {
	OrderStore

	refuses string // an order whose data is refused
}

func (s *stuck) Cancel(ctx context.Context, asked []model.Cancellation) ([]model.Canceled, error) {
	var answers []model.Canceled
	for _, one := range asked {
		switch {
		case strings.HasSuffix(one.OrderID, ".stuck"):
			<-ctx.Done()
			return nil, model.Unavailable("gone", ctx.Err())
		case one.OrderID == s.refuses:
			return nil, fmt.Errorf("%w: out of range", model.ErrDataRefused)
		}
		answers = append(answers, model.Canceled{Order: model.Order{ID: one.OrderID}, Changed: true})
	}
	return answers, nil
}

func TestTroubleOfACancellationIsItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &stuck{refuses: "2.well"}
		c := newCanceler(store)
		defer c.group.Close(context.Background())
		var all sync.WaitGroup
		for _, id := range []string{"1.stuck", "2.stuck", "3.stuck"} {
			all.Go(func() {
				ctx, enough := context.WithTimeout(t.Context(), budget.Work)
				defer enough()
				began := time.Now()
				_, err := c.do(ctx, model.Cancellation{OrderID: id, UserID: "alice"})
				check.Is(t, id, err, model.ErrUnknownOutcome)
				servicetest.Took(t, id, began, 0, budget.Work)
			})
			synctest.Wait()
		}
		began := time.Now()
		asked := []model.Cancellation{{OrderID: "1.well"}, {OrderID: "2.well"}, {OrderID: "3.well"}}
		answers, err := c.commit(t.Context(), "well", asked)
		check.Must(t, err)
		check.That(t, answers[0].Changed && errors.Is(answers[1].Err, model.ErrDataRefused) && answers[2].Changed,
			"%+v", answers)
		canceled, err := c.do(t.Context(), model.Cancellation{OrderID: "4.well", UserID: "alice"})
		check.Must(t, err)
		check.Equal(t, "one more is canceled", canceled.Changed, true)
		servicetest.Took(t, "those of the other voucher", began, 0, 0)
		all.Wait()
	})
}

func TestCancelThatCannotTellTheHotCopyLeavesItToTheOutbox(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(s hotShop){
		"later": func(s hotShop) { s.sale.Set("state", model.CopyClosed) },
		"away":  func(s hotShop) { s.hot.Down = errors.New("connection refused") },
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			placed := s.persist(t, "alice")
			s.hot.With(func() { prepare(s) })
			s.cancels(t, "alice", placed.ID)
			check.Equal(t, "releases that the outbox was told of", len(s.rows.noted), 0)
		})
	}
}

// Who hears that an order is canceled may tell others that a unit is free.
func TestCancelWaitsOutAShortAbsenceOfRedis(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.sale.Set("stock", 1)
		placed := s.persist(t, "alice")
		s.hot.With(func() { s.hot.Down = errors.New("connection refused") })
		time.AfterFunc(time.Second, func() { s.hot.With(func() { s.hot.Down = nil }) })
		s.cancels(t, "alice", placed.ID)
		s.buys(t, "bob")
	})
}

func TestCancelIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		prepare func(s hotShop)
		user    string
		id      string // empty: alice's
		want    model.Code
		status  model.OrderStatus
	}{
		"processing":                  {user: "alice", want: model.CodeIllegalState, status: model.OrderProcessing},
		"processing, somebody else's": {user: "bob", want: model.CodeNotFound},
		"paid": {prepare: func(s hotShop) {
			s.rows.put(model.Order{ID: "p.v1", UserID: "alice", Status: model.OrderPaid})
		}, user: "alice", id: "p.v1", want: model.CodeIllegalState, status: model.OrderPaid},
		"nowhere":                 {user: "alice", id: "no.v1", want: model.CodeNotFound},
		"an id that cannot exist": {user: "alice", id: "no", want: model.CodeNotFound},
		"nowhere, copy closed": {
			prepare: func(s hotShop) { s.sale.Set("state", model.CopyClosed) },
			user:    "alice", id: "no.v1", want: model.CodeUnavailable,
		},
		"database away": {
			prepare: func(s hotShop) { s.rows.fail(model.Unavailable("gone", model.ErrUnknownOutcome)) },
			user:    "alice", want: model.CodeUnavailable,
		},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			id := s.buys(t, "alice").ID
			if tt.id != "" {
				id = tt.id
			}
			if tt.prepare != nil {
				tt.prepare(s)
			}
			order, err := s.Cancel(t.Context(), tt.user, id)
			refusal, _ := errors.AsType[*model.Error](err)
			check.That(t, model.CodeOf(err) == tt.want && refusal != nil && refusal.OrderStatus == tt.status,
				"%+v, %v; want %s", order, err, tt.want)
			check.Equal(t, "units given back", s.hot.Calls("release"), 0)
		})
	}
}

package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/batch"
	"seckill/internal/ids"
	"seckill/model"
)

const (
	// commitTimeout bounds one shared transaction with all its repetitions. It is longer
	// than a request's time, so that most unknown outcomes are decided while the users'
	// locks are still held, and shorter than a stop may take.
	commitTimeout = 6 * time.Second
	// maxCommitBatch orders share one transaction, which must stay short. Requests that are
	// waited for are fewer (maxCommitting); those whose clients have left come on top.
	maxCommitBatch = 500
	// commitWriters commit at once: one prepares while the other waits for the disk.
	commitWriters = 2
	// maxCommitting requests take locks and wait for transactions at once: enough for
	// two transactions of a hundred orders, and for those that gather behind them.
	maxCommitting = 256
	// maxCommitQueue orders wait. Further ones are refused at once, because they could
	// not be made within their time anyway.
	maxCommitQueue = 8192
)

// syncSeller sells from the database: a request is answered when its order is
// committed. Concurrent orders share a transaction.
type syncSeller struct {
	OrderDeps

	commits  *batch.Group[model.Order, model.Outcome]
	cancels  canceler
	settling sync.WaitGroup // orders whose clients were answered before they were decided
}

func newSyncSeller(deps OrderDeps) *syncSeller {
	s := &syncSeller{OrderDeps: deps, cancels: newCanceler(deps.Store)}
	s.commits = batch.New(s.create, batch.Options{
		Writers: commitWriters, MaxBatch: maxCommitBatch, MaxQueue: maxCommitQueue,
		Timeout: commitTimeout, Observe: deps.Metrics.Batch,
	})
	return s
}

func (s *syncSeller) drain() {}

func (s *syncSeller) close(ctx context.Context) {
	s.commits.Close(ctx)
	s.cancels.group.Close(ctx)
	s.settling.Wait()
}

func (s *syncSeller) known(userID, voucherID string) (known bool, refusal error) {
	return s.Cache.Known(userID, voucherID)
}

func (s *syncSeller) refusal(ctx context.Context, userID, voucherID string) error {
	return s.Cache.Refusal(ctx, userID, voucherID)
}

func (s *syncSeller) overload(context.Context, string, string) error { return nil }

func (s *syncSeller) locksItself() bool { return false }

// sell creates the order in a transaction with others. From here on it makes no
// difference when the client hangs up: the user's lock is held until the order is
// decided.
func (s *syncSeller) sell(ctx context.Context, lease model.Lease, userID, voucherID string) (model.Order, error) {
	if err := lost(lease); err != nil { //nolint:contextcheck // the lock has a life of its own
		s.unlock(ctx, lease, userID)
		return model.Order{}, err
	}
	unique, err := ids.New()
	if err != nil {
		s.unlock(ctx, lease, userID)
		return model.Order{}, err
	}
	order := model.Order{ID: model.OrderID(unique, voucherID), VoucherID: voucherID, UserID: userID, Trace: s.Trace.of(ctx)}
	ticket, err := s.commits.Submit(ctx, order)
	if err != nil {
		s.unlock(ctx, lease, userID)
		return model.Order{}, batch.Undone("Too many orders are waiting.", err)
	}
	outcome, err := ticket.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		s.settle(ctx, ticket, lease, order)
		return model.Order{}, model.Unavailable("It is not known yet whether the order was made.",
			fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, order.ID, err))
	}
	s.unlock(ctx, lease, userID)
	if err != nil {
		return model.Order{}, batch.Undone("The order could not be made.", fmt.Errorf("create order %s: %w", order.ID, err))
	}
	return s.answer(voucherID, outcome)
}

// create commits orders in one transaction. If that fails it commits them voucher by
// voucher, because one voucher's trouble must refuse no buyer of another one.
func (s *syncSeller) create(ctx context.Context, orders []model.Order) ([]model.Outcome, error) {
	outcomes, err := s.Store.CreateOrders(ctx, orders)
	if err == nil || errors.Is(err, model.ErrUnknownOutcome) { // then some may have been committed
		return outcomes, err
	}
	members := map[string][]int{}
	for i, order := range orders {
		members[order.VoucherID] = append(members[order.VoucherID], i)
	}
	if len(members) == 1 {
		return nil, err
	}
	outcomes = make([]model.Outcome, len(orders))
	for _, indices := range members {
		some := make([]model.Order, len(indices))
		for j, i := range indices {
			some[j] = orders[i]
		}
		decided, err := s.Store.CreateOrders(ctx, some)
		for j, i := range indices {
			if err != nil {
				outcomes[i].Err = err
			} else {
				outcomes[i] = decided[j]
			}
		}
	}
	return outcomes, nil
}

// settle holds the user's lock until the order is decided, although the client has been
// answered. The queue of the commits bounds how many such orders there are, their
// timeout how long each of them lasts.
func (s *syncSeller) settle(ctx context.Context, ticket *batch.Ticket[model.Order, model.Outcome], lease model.Lease, order model.Order) {
	s.Metrics.Unknown()
	ctx = context.WithoutCancel(ctx)
	s.settling.Go(func() {
		outcome, err := ticket.Wait(ctx)
		s.unlock(ctx, lease, order.UserID)
		if errors.Is(err, batch.ErrNotRun) {
			return
		}
		s.Log.InfoContext(ctx, "an order was decided after its client had been answered",
			slog.String("order_id", order.ID), slog.Bool("created", err == nil && outcome.Err == nil), slog.Any("error", errors.Join(err, outcome.Err)))
	})
}

func (s *syncSeller) answer(voucherID string, outcome model.Outcome) (model.Order, error) {
	if outcome.Err == nil {
		return outcome.Order, nil
	}
	if model.CodeOf(outcome.Err) == model.CodeSoldOut {
		s.Cache.SoldOut(voucherID)
	}
	return model.Order{}, outcome.Err
}

func (s *syncSeller) get(ctx context.Context, userID, orderID string, _ time.Duration) (model.Order, error) {
	order, err := s.Store.Get(ctx, orderID)
	if err != nil {
		return model.Order{}, s.unheard(err)
	}
	return own(order, userID)
}

// unheard makes UNAVAILABLE of NOT_FOUND while the database is sold from in another
// order mode: this instance cannot see the orders that are processing.
func (s *syncSeller) unheard(err error) error {
	if model.CodeOf(err) != model.CodeNotFound {
		return err
	}
	return cmp.Or(s.Selling(), err)
}

func (s *syncSeller) list(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	return s.Store.List(ctx, q)
}

func (s *syncSeller) each(ctx context.Context, q model.OrderQuery, yield func(model.Order) error) error {
	return s.Store.Each(ctx, q, yield)
}

func (s *syncSeller) detail(ctx context.Context, orderID string) (model.OrderDetail, error) {
	detail, err := s.Store.Detail(ctx, orderID)
	return detail, s.unheard(err)
}

func (s *syncSeller) cancel(ctx context.Context, asked model.Cancellation) (model.Order, bool, error) {
	return s.cancels.do(ctx, asked)
}

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
	// maxCommitBatch orders share one transaction: beyond a hundred nothing is gained
	// per order (measured), and one transaction must stay short.
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
	order := model.Order{ID: model.OrderID(unique, voucherID), VoucherID: voucherID, UserID: userID}
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

func (s *syncSeller) create(ctx context.Context, orders []model.Order) ([]model.Outcome, error) {
	return byVoucher(ctx, orders, s.Store.CreateOrders,
		func(order model.Order) string { return order.VoucherID },
		func(err error) model.Outcome { return model.Outcome{Err: err} })
}

// byVoucher commits items in one transaction. If that fails it commits them voucher by
// voucher, because one voucher's trouble must refuse nobody anything of another one.
func byVoucher[In, Out any](
	ctx context.Context, items []In, commit batch.Run[In, Out], voucher func(In) string, failed func(error) Out,
) ([]Out, error) {
	answers, err := commit(ctx, items)
	if err == nil || errors.Is(err, model.ErrUnknownOutcome) { // then some may have been committed
		return answers, err
	}
	members := map[string][]int{}
	for i, item := range items {
		members[voucher(item)] = append(members[voucher(item)], i)
	}
	if len(members) == 1 {
		return nil, err
	}
	answers = make([]Out, len(items))
	for _, indices := range members {
		some := make([]In, len(indices))
		for j, i := range indices {
			some[j] = items[i]
		}
		decided, err := commit(ctx, some)
		for j, i := range indices {
			if err != nil {
				answers[i] = failed(err)
			} else {
				answers[i] = decided[j]
			}
		}
	}
	return answers, nil
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

func (s *syncSeller) cancel(ctx context.Context, userID, orderID string) (model.Order, bool, error) {
	return s.cancels.do(ctx, userID, orderID)
}

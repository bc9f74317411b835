package sale

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
	"seckill/internal/tracing"
	"seckill/model"
)

const (
	// maxCommitting requests take locks and wait for transactions at once.
	maxCommitting = 1024
	// maxCommittingOne of them are for one voucher: enough for two transactions of a
	// hundred orders, and for those that gather behind them. A hot voucher gains nothing
	// by more, and one in trouble leaves the rest to the others.
	maxCommittingOne = 256
)

// syncSeller sells from the database: a request is answered when its order is
// committed. Concurrent orders share a transaction.
type syncSeller struct {
	deps     Deps
	commits  *committer
	cancels  canceler
	settling sync.WaitGroup // orders whose clients were answered before they were decided
}

func newSyncSeller(deps Deps) *syncSeller {
	return &syncSeller{deps: deps, commits: newCommitter(deps.Store, deps.Metrics, deps.Log), cancels: newCanceler(deps.Store)}
}

func (s *syncSeller) drain() {}

func (s *syncSeller) close(ctx context.Context) {
	s.commits.close(ctx)
	s.cancels.group.Close(ctx)
	s.settling.Wait()
}

func (s *syncSeller) known(userID, voucherID string) (known bool, refusal error) {
	return s.deps.Cache.Known(userID, voucherID)
}

func (s *syncSeller) refusal(ctx context.Context, userID, voucherID string) error {
	return s.deps.Cache.Refusal(ctx, userID, voucherID)
}

func (s *syncSeller) overload(context.Context, string, string) error { return nil }

func (s *syncSeller) locksItself() bool { return false }

// sell creates the order in a transaction with others. From here on it makes no
// difference when the client hangs up: the user's lock is held until the order is
// decided.
func (s *syncSeller) sell(ctx context.Context, user *hold, voucherID string) (model.Order, error) {
	unique, err := ids.New()
	if err != nil {
		return model.Order{}, err
	}
	order := model.Order{ID: model.OrderID(unique, voucherID), VoucherID: voucherID, UserID: user.userID, Trace: tracing.Of(ctx)}
	for {
		if err := user.lost(); err != nil { //nolint:contextcheck // the lock has a life of its own
			return model.Order{}, err
		}
		ticket, err := s.commits.submit(ctx, order)
		if err != nil {
			return model.Order{}, batch.Undone("Too many orders are waiting.", err)
		}
		outcome, err := ticket.Wait(ctx)
		if err != nil && ctx.Err() != nil {
			s.settle(ctx, ticket, user.handOver(), order)
			return model.Order{}, model.Unavailable("It is not known yet whether the order was made.",
				fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, order.ID, err))
		}
		err = cmp.Or(err, outcome.Err)
		if untried(err) && ctx.Err() == nil {
			continue
		}
		return s.answer(ctx, order, outcome.Order, err)
	}
}

// settle holds the user's lock until the order is decided, although the client has been
// answered. The queue of the commits bounds how many such orders there are, their
// timeout how long each of them lasts.
func (s *syncSeller) settle(ctx context.Context, ticket *orderTicket, user *hold, order model.Order) {
	s.deps.Metrics.Unknown()
	ctx = context.WithoutCancel(ctx)
	s.settling.Go(func() {
		defer user.release(ctx)
		outcome, err := ticket.Wait(ctx)
		if errors.Is(err, batch.ErrNotRun) {
			return
		}
		s.deps.Log.InfoContext(ctx, "an order was decided after its client had been answered",
			slog.String("order_id", order.ID), slog.Bool("created", err == nil && outcome.Err == nil), slog.Any("error", errors.Join(err, outcome.Err)))
	})
}

func (s *syncSeller) answer(ctx context.Context, asked, made model.Order, err error) (model.Order, error) {
	switch {
	case err == nil:
		return made, nil
	case model.CodeOf(err) == model.CodeSoldOut:
		s.deps.Cache.SoldOut(asked.VoucherID)
	case model.CodeOf(err) == model.CodeNotFound:
		// The cache knew the voucher. Another reading tells whether it was taken back or its row
		// is away for a moment.
		s.deps.Cache.Drop(asked.VoucherID)
		err = cmp.Or(s.deps.Cache.Refusal(ctx, asked.UserID, asked.VoucherID), error(model.Unavailable("The voucher was away.", err)))
	}
	return model.Order{}, batch.Undone("The order could not be made.", fmt.Errorf("sell voucher %s: %w", asked.VoucherID, err))
}

func (s *syncSeller) get(ctx context.Context, userID, orderID string, _ time.Duration) (model.Order, error) {
	order, err := s.deps.Store.Get(ctx, orderID)
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
	return cmp.Or(s.deps.Selling(), err)
}

func (s *syncSeller) list(ctx context.Context, q model.OrderQuery) (model.OrderPage, error) {
	return s.deps.Store.List(ctx, q)
}

func (s *syncSeller) each(ctx context.Context, q model.OrderQuery, yield func(model.Order) error) error {
	return s.deps.Store.Each(ctx, q, yield)
}

func (s *syncSeller) detail(ctx context.Context, orderID string) (model.OrderDetail, error) {
	detail, err := s.deps.Store.Detail(ctx, orderID)
	return detail, s.unheard(err)
}

func (s *syncSeller) cancel(ctx context.Context, asked model.Cancellation) (model.Order, bool, error) {
	return s.cancels.do(ctx, asked)
}

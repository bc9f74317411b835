package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"seckill/internal/batch"
	"seckill/internal/ids"
	"seckill/model"
)

// commit creates the order in a transaction it shares with others. From here
// on a client that hangs up changes nothing: the order is decided, and the
// user's lock is held until it is.
func (s *Orders) commit(ctx context.Context, lease Lease, userID, voucherID string) (model.Order, error) {
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
		return model.Order{}, undone("Too many orders are waiting.", err)
	}
	outcome, err := ticket.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		s.settle(ctx, ticket, lease, order)
		return model.Order{}, model.Unavailable("It is not known yet whether the order was made.",
			fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, order.ID, err))
	}
	s.unlock(ctx, lease, userID)
	if err != nil {
		return model.Order{}, undone("The order could not be made.", fmt.Errorf("create order %s: %w", order.ID, err))
	}
	return s.answer(voucherID, outcome)
}

// create commits orders in one transaction, and voucher by voucher when the
// database refuses that: one voucher's trouble must refuse no other's buyers.
func (s *Orders) create(ctx context.Context, orders []model.Order) ([]model.Outcome, error) {
	outcomes, err := s.store.CreateOrders(ctx, orders)
	if err == nil || errors.Is(err, model.ErrUnknownOutcome) { // only the same ids again could tell
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
		decided, err := s.store.CreateOrders(ctx, some)
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

// settle holds the user's lock until the order is decided, behind a client
// that has been answered. The commit queue bounds how many there are, its
// timeout how long they last.
func (s *Orders) settle(ctx context.Context, ticket *batch.Ticket[model.Order, model.Outcome], lease Lease, order model.Order) {
	s.metrics.Unknown()
	ctx = context.WithoutCancel(ctx)
	s.settling.Go(func() {
		outcome, err := ticket.Wait(ctx)
		s.unlock(ctx, lease, order.UserID)
		if errors.Is(err, batch.ErrNotRun) {
			return
		}
		s.log.InfoContext(ctx, "an order was decided after its client had been answered",
			slog.String("order_id", order.ID), slog.Bool("created", err == nil && outcome.Err == nil), slog.Any("error", errors.Join(err, outcome.Err)))
	})
}

func (s *Orders) answer(voucherID string, outcome model.Outcome) (model.Order, error) {
	if outcome.Err == nil {
		return outcome.Order, nil
	}
	if model.CodeOf(outcome.Err) == model.CodeSoldOut {
		s.copies.soldOut(voucherID)
	}
	return model.Order{}, outcome.Err
}

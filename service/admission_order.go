package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"seckill/internal/batch"
	"seckill/internal/ids"
	"seckill/model"
)

// admissionAttempts is how often an order is reserved: once more after what
// stood in its way was cleared. Whatever then stands there is somebody else's
// doing, and the client's next call deals with it.
const admissionAttempts = 2

// overload refuses while too many orders wait; nil while they do not.
func (s *Orders) overload(ctx context.Context, userID, voucherID string) error {
	if err := s.admission.backlog.refusal(voucherID); err != nil {
		return cmp.Or(s.ordered(ctx, userID, voucherID), err)
	}
	return nil
}

// admit reserves and queues an order of a user who is inside the gate.
func (s *Orders) admit(ctx context.Context, lease Lease, userID, voucherID string) (model.Order, error) {
	reservation, err := s.reserve(ctx, lease, userID, voucherID)
	if err != nil {
		return model.Order{}, err
	}
	if reservation.Status != model.OrderProcessing {
		return s.settled(ctx, reservation.ID)
	}
	return s.publish(ctx, reservation)
}

// ordered is ALREADY_ORDERED for a user who has an order, as far as that can be
// told: nothing new is promised to him. Anything else is nil.
func (s *Orders) ordered(ctx context.Context, userID, voucherID string) error {
	held, err := s.admission.held.Do(ctx, model.Buyer{VoucherID: voucherID, UserID: userID})
	switch {
	case err != nil || held.OrderID == "":
		return nil //nolint:nilerr // he is told what he would have been told anyway
	case held.Pending != nil:
		return model.AlreadyOrdered(processing(*held.Pending))
	}
	row, err := s.row(ctx, held.OrderID)
	if err != nil || row == nil || !row.Live() {
		return nil //nolint:nilerr // likewise
	}
	return model.AlreadyOrdered(*row)
}

// settled answers with the row of an order whose reservation had to be sent
// again, and which was published and persisted by somebody else in between.
func (s *Orders) settled(ctx context.Context, orderID string) (model.Order, error) {
	row, err := s.row(ctx, orderID)
	if err == nil && row == nil {
		err = errors.New("it was settled, and has no row")
	}
	if err != nil {
		return model.Order{}, s.unknown(orderID, err)
	}
	return *row, nil
}

// reserve takes a unit under the user's lock, or under none (then the hot copy
// looks whether anybody else holds it), and gives the lock back as soon as that is
// decided.
//
// The user's lock covers the reserving and not the publishing. Taking the unit
// is the one step in which two requests of a user, or a request and another
// program that holds the user's lock, could meet; it is atomic, and what follows
// changes nothing that anybody else could decide differently. And where the
// script looks at the lock by itself there is no lock at all once the unit is
// taken: both ways must look the same from outside.
func (s *Orders) reserve(ctx context.Context, lease Lease, userID, voucherID string) (model.Reservation, error) {
	try := &reserving{Orders: s, lease: lease}
	defer try.giveBack(ctx)
	try.asked = model.ReserveRequest{VoucherID: voucherID, UserID: userID, Locked: lease != nil}
	unique, err := ids.New()
	if err != nil {
		return model.Reservation{}, err
	}
	try.asked.OrderID = model.OrderID(unique, voucherID)
	for range admissionAttempts {
		admitted, err := try.once(ctx)
		if err != nil {
			return model.Reservation{}, err
		}
		if admitted.Err == nil {
			return admitted.Reservation, nil
		}
		try.epoch = admitted.Epoch
		if err := try.overcome(ctx, admitted.Err); err != nil {
			return model.Reservation{}, err
		}
	}
	return model.Reservation{}, model.Unavailable("Your earlier order is just being closed.", nil)
}

// reserving is one order's attempt to get a unit.
type reserving struct {
	*Orders

	lease Lease // nil: none, or given to somebody else
	asked model.ReserveRequest
	epoch int64 // of the hot copy that refused it
}

func (r *reserving) giveBack(ctx context.Context) { r.unlock(ctx, r.lease, r.asked.UserID) }

// once asks the hot copy for the unit. From here on a client that hangs up
// changes nothing: the unit is taken or not, the user's lock is held until that
// is known, and what is taken is published.
func (r *reserving) once(ctx context.Context) (model.ReserveResult, error) {
	if err := lost(r.lease); err != nil { //nolint:contextcheck // the lock has a life of its own
		return model.ReserveResult{}, err
	}
	ticket, err := r.admission.reserves.Submit(ctx, r.asked)
	if err != nil {
		return model.ReserveResult{}, undone("Too many orders are waiting.", err)
	}
	admitted, err := ticket.Wait(ctx)
	switch err = errors.Join(err, doubt(admitted.Err)); {
	case err == nil:
		return admitted, nil
	case ctx.Err() != nil:
		r.follow(ctx, ticket)
		return model.ReserveResult{}, r.unknown(r.asked.OrderID, err)
	case errors.Is(err, model.ErrUnknownOutcome):
		return model.ReserveResult{}, r.unknown(r.asked.OrderID, err)
	default:
		return model.ReserveResult{}, undone("The order could not be placed.",
			fmt.Errorf("reserve order %s: %w", r.asked.OrderID, err))
	}
}

// doubt is the error of an admission that is neither made nor refused, as far as
// is known.
func doubt(err error) error {
	if errors.Is(err, model.ErrUnknownOutcome) {
		return err
	}
	return nil
}

// follow sees an order through behind a client that has been answered. The
// queue bounds how many there are, its timeout how long they last.
func (r *reserving) follow(ctx context.Context, ticket *batch.Ticket[model.ReserveRequest, model.ReserveResult]) {
	followed := *r
	r.lease = nil
	ctx = context.WithoutCancel(ctx)
	r.settling.Go(func() {
		admitted, err := ticket.Wait(ctx)
		followed.giveBack(ctx)
		if err != nil || admitted.Err != nil || admitted.Status != model.OrderProcessing {
			return
		}
		if _, err := r.admission.publishes.Submit(ctx, admitted.Reservation); err != nil {
			r.log.WarnContext(ctx, "a reserved order is left to the reconciler",
				slog.String("order_id", admitted.ID), slog.Any("error", err))
		}
	})
}

// publish queues a reservation in a message it shares with others. The unit
// stays taken whatever comes of it.
func (s *Orders) publish(ctx context.Context, reservation model.Reservation) (model.Order, error) {
	// A client that hangs up must not take his reservation out of the queue.
	ticket, err := s.admission.publishes.Submit(context.WithoutCancel(ctx), reservation)
	if err != nil {
		return model.Order{}, s.unknown(reservation.ID, err)
	}
	verdict, err := ticket.Wait(ctx)
	if err = errors.Join(err, verdict); err != nil {
		return model.Order{}, s.unknown(reservation.ID, err)
	}
	return processing(reservation), nil
}

// unknown answers for an order of which it is not known whether it was made.
func (s *Orders) unknown(orderID string, cause error) error {
	s.metrics.Unknown()
	return model.Unavailable("It is not known yet whether the order was made.",
		fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, orderID, cause))
}

// processing is a reservation as its user sees it.
func processing(r model.Reservation) model.Order {
	return model.Order{
		ID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID, Status: model.OrderProcessing,
		Price: r.Price, Currency: r.Currency, CreatedAt: r.CreatedAt,
	}
}

package queue

import (
	"context"
	"errors"
	"log/slog"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/model"
)

// Orders of all vouchers share messages. An order that cannot be stored now for a reason of its voucher, or of its own,
// must not keep such a message: everything that waits for the messages from before a moment waits for the oldest of
// them. So its worker isolates it, durably, on a subject of its voucher, and acknowledges the message in which it came.
// There it is delivered again, later and later, until it is stored. A process that dies in between leaves it in both
// messages, which changes nothing: the database knows it by its id.
//
// An order that was isolated keeps the sequence of the message in which it came, because a
// rebuild tells by that whether it counts.
//
// An order from behind the barrier of a rebuild waits for that rebuild, and the rebuild
// waits for the orders that were isolated. Such an order was never promised, because its epoch
// was closed when it was published. It is published again behind all others.

// strayTries is how many deliveries, over some 1.5 s, a message waits for a running rebuild before its orders are
// published again: most rebuilds have ended by then.
const strayTries = 5

// leaving tells which orders of a message are to be isolated, and which to be published
// again. Nothing leaves the message while anything has to stay in it: it comes again anyway.
func (m *message) leaving() (isolated, again []model.Reservation) {
	if m.trouble != nil {
		return nil, nil
	}
	for i, verdict := range m.verdicts {
		switch {
		case verdict == nil:
		case errors.Is(verdict, model.ErrCopyReplaced):
			again = append(again, m.orders[i])
		case errors.Is(verdict, model.ErrOutage), m.road == roadIsolated:
			return nil, nil
		default:
			isolated = append(isolated, m.orders[i])
		}
	}
	if len(isolated) == 0 && m.delivered < strayTries {
		return nil, nil
	}
	return isolated, again
}

// moveAll moves the orders of a batch that are to leave their messages, all in one go, and marks these messages.
func (c *consumption) moveAll(ctx context.Context, batch []*message) {
	var isolated, again []model.Reservation
	var left []*message
	for _, m := range batch {
		mine, others := m.leaving()
		if isolated, again = append(isolated, mine...), append(again, others...); len(mine)+len(others) > 0 {
			left = append(left, m)
		}
	}
	if len(left) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Call+c.queue.slack) // a queue that takes longer gets the messages back
	defer cancel()
	failpoint.Reach(failpoint.BeforeMove)
	err := c.queue.isolate(ctx, isolated)
	if err == nil {
		err = c.queue.Publish(ctx, again)
	}
	if err != nil {
		c.queue.log.WarnContext(ctx, "orders cannot be moved to messages of their own, and come again", slog.Any("error", err))
		return
	}
	failpoint.Reach(failpoint.AfterMove)
	for _, m := range left {
		m.moved = true
	}
}

// isolate stores orders on the subjects of their vouchers.
func (q *Queue) isolate(ctx context.Context, orders []model.Reservation) error {
	own := map[string][]order1{}
	for _, r := range orders {
		o := orderOf(r)
		o.Sequence = r.Sequence
		subject := q.names.isolated(r.VoucherID)
		own[subject] = append(own[subject], o)
	}
	return q.publishAll(ctx, own)
}

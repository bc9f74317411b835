package sale

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"seckill/internal/batch"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// commitTimeout bounds one shared transaction with all its repetitions. It is longer
	// than a request's time, so that most unknown outcomes are decided while the users'
	// locks are still held, and shorter than a stop may take.
	commitTimeout = 6 * time.Second
	// maxCommitBatch orders share one transaction, which must stay short. The orders of one
	// voucher that are waited for are fewer (maxCommittingOne).
	maxCommitBatch = 500
	// commitWriters commit at once: one prepares while the other waits for the disk.
	commitWriters = 2
	// maxCommitQueue orders wait. Further ones are refused at once, because they could
	// not be made within their time anyway.
	maxCommitQueue = 8192
	// loneWriters commit at once for the vouchers that are apart. With the writers that
	// all share they take half of the connections that sell, so that vouchers in trouble
	// leave the other half to cancellations, payments and administrators.
	loneWriters = 4
	// longWait for a voucher's row keeps the others of its transaction waiting for
	// too long. A transaction that sells takes some milliseconds.
	longWait = 250 * time.Millisecond
	// sharedTries is how often a run begins in different company. Each further voucher whose
	// row is locked would cost the others a second; then each goes by itself.
	sharedTries = 2
)

// orderTicket stands for an order that waits for its transaction.
type orderTicket = batch.Ticket[model.Order, model.Outcome]

// errApart answers an order that was not tried because its voucher has left the shared
// transactions meanwhile.
var errApart = model.Unavailable("The voucher's orders could not be made a moment ago.", errors.New("the voucher is apart"))

// committer makes orders. The orders of all vouchers share transactions, because that is
// what makes them fast. A voucher that spoils one, or keeps it waiting, leaves: its orders
// have transactions of their own for a while, so that no other voucher waits for it again.
type committer struct {
	store  OrderStore
	log    *slog.Logger
	shared *batch.Group[model.Order, model.Outcome]
	lone   *batch.Keyed[model.Order, model.Outcome]
	apart  *apart
}

func newCommitter(store OrderStore, metrics *telemetry.Metrics, log *slog.Logger) *committer {
	c := &committer{store: store, log: log, apart: newApart()}
	options := batch.Options{
		Writers: commitWriters, MaxBatch: maxCommitBatch, MaxQueue: maxCommitQueue,
		Timeout: commitTimeout, Observe: metrics.Batch,
	}
	c.shared = batch.New(c.together, options)
	options.Writers = loneWriters
	c.lone = batch.NewKeyed(c.alone, options)
	return c
}

func (c *committer) close(ctx context.Context) {
	c.shared.Close(ctx)
	c.lone.Close(ctx)
}

// submit queues an order. When the answer is untried, nothing has happened, and the
// order is to be submitted again.
func (c *committer) submit(ctx context.Context, order model.Order) (*orderTicket, error) {
	for {
		alone, late := c.apart.look(order.VoucherID, nil)
		switch {
		case alone:
			return c.lone.Submit(ctx, order.VoucherID, order)
		case late == nil:
			return c.shared.Submit(ctx, order)
		}
		select {
		case <-late.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// untried reports whether nothing has happened to an order. A COMMIT without an answer may
// have been followed by a wait in vain, and has still to be decided.
func untried(err error) bool { return held(err) != nil || errors.Is(err, errApart) }

// held is the wait in vain for which a transaction did nothing; nil: it was none.
func held(err error) *model.HeldError {
	wait, ok := errors.AsType[*model.HeldError](err)
	if !ok || errors.Is(err, model.ErrUnknownOutcome) {
		return nil
	}
	return wait
}

// together commits the orders of all vouchers but those that are apart. It begins anew
// without a voucher that is in trouble.
func (c *committer) together(ctx context.Context, orders []model.Order) ([]model.Outcome, error) {
	answers := make([]model.Outcome, len(orders))
	own := &run{ended: make(chan struct{})}
	some, indices := c.others(own, orders, answers)
	defer c.apart.watch(own, some)()
	for tries := 1; len(some) > 0; tries++ {
		outcomes, err := c.store.CreateOrders(ctx, some)
		if c.judge(ctx, some, outcomes, err) {
			if tries == sharedTries {
				c.part(some)
			}
			some, indices = c.others(own, orders, answers)
			continue
		}
		for j, i := range indices {
			if err != nil {
				answers[i].Err = err
			} else {
				answers[i] = outcomes[j]
			}
		}
		break
	}
	return answers, nil
}

// others gives the orders that a run may commit, with their places among all, and answers
// those whose vouchers are apart or in another run that takes long.
func (c *committer) others(own *run, orders []model.Order, answers []model.Outcome) (some []model.Order, indices []int) {
	indices = make([]int, 0, len(orders))
	for i := range orders {
		if alone, late := c.apart.look(orders[i].VoucherID, own); alone || late != nil {
			answers[i].Err = errApart
		} else {
			indices = append(indices, i)
		}
	}
	if len(indices) == len(orders) {
		return orders, indices
	}
	for _, i := range indices {
		some = append(some, orders[i])
	}
	return some, indices
}

// alone commits the orders of one voucher that is apart.
func (c *committer) alone(ctx context.Context, orders []model.Order) ([]model.Outcome, error) {
	outcomes, err := c.store.CreateOrders(ctx, orders)
	c.judge(ctx, orders, outcomes, err)
	return outcomes, err
}

// judge puts vouchers apart after a transaction: those whose rows it waited for, or one
// that has spoilt it. Where it is not known which one that was, each has to show it alone.
// It reports whether nothing has happened and orders are to be tried in other company.
func (c *committer) judge(ctx context.Context, orders []model.Order, outcomes []model.Outcome, err error) (again bool) {
	if err == nil {
		for i := range outcomes {
			if outcomes[i].Waited > longWait {
				c.leave(ctx, orders[i].VoucherID, nil)
			}
		}
		return false
	}
	if wait := held(err); wait != nil && wait.VoucherID != "" {
		c.leave(ctx, wait.VoucherID, err)
		return true
	}
	vouchers := map[string]bool{}
	for i := range orders {
		vouchers[orders[i].VoucherID] = true
	}
	if len(vouchers) == 1 {
		c.leave(ctx, orders[0].VoucherID, err)
		return false
	}
	c.part(orders)
	return !errors.Is(err, model.ErrUnknownOutcome)
}

// part puts the vouchers of orders apart until it is seen which of them are well.
func (c *committer) part(orders []model.Order) {
	for i := range orders {
		c.apart.add(orders[i].VoucherID, suspicionTerm)
	}
}

// leave puts a voucher apart for trouble of its own. Only the first is logged: where the
// database is away, all follow.
func (c *committer) leave(ctx context.Context, voucherID string, err error) {
	if c.apart.add(voucherID, troubleTerm) {
		c.log.WarnContext(ctx, "the orders of a voucher take long or fail; they share no transactions with others for now",
			slog.String("voucher_id", voucherID), slog.Any("error", err))
	}
}

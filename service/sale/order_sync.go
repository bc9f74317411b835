package sale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/internal/lane"
	"seckill/internal/telemetry"
	"seckill/internal/tracing"
	"seckill/model"
)

const (
	maxCommitting = 1024 // take locks and wait for transactions at once
	// maxCommittingOne of them are for one voucher: two transactions of a hundred, and the next. More gains nothing.
	maxCommittingOne = 256

	// commitTimeout bounds a transaction and its repetitions: over a request's time (locks are held), under a stop's.
	commitTimeout  = budget.Answer + budget.Look
	maxCommitBatch = 500  // share one transaction, which must stay short; of one voucher maxCommittingOne
	commitWriters  = 2    // commit at once: one prepares while the other waits for the disk
	maxCommitQueue = 8192 // wait. Further ones are refused at once: they could not be made in time
	// loneWriters commit for isolated vouchers. With the shared writers they take half of the selling connections.
	loneWriters = 4
)

// purchase is an order to be made, under a lease that outlasts it; nil: its user's lock is taken with others'.
type purchase struct {
	order   model.Order
	lease   model.Lease
	refusal error // of the lock, in the latest transaction
}

type orderTicket = lane.Ticket[*purchase, model.Outcome]

// syncSeller sells from the database: it answers committed orders. Vouchers share transactions unless in trouble.
type syncSeller struct {
	OrderStore // lists orders

	deps     Deps
	together model.GroupLocker // nil: locks are taken one by one, before
	commits  *lane.Lane[*purchase, model.Outcome]
	cancels  canceler
	settling sync.WaitGroup // orders whose clients were answered before they were decided
}

func newSyncSeller(deps Deps) *syncSeller {
	s := &syncSeller{OrderStore: deps.Store, deps: deps, cancels: newCanceler(deps.Store)}
	s.together, _ = deps.Locks.(model.GroupLocker)
	s.commits = lane.NewLane(lane.Rules[*purchase, model.Outcome]{
		Key: func(p *purchase) string { return p.order.VoucherID }, Run: s.commit,
		// All that shared the transaction waited for a voucher's row.
		Judge: func(o model.Outcome) lane.Trouble { return lane.Trouble{Slow: o.Waited > budget.Glance} },
		Total: loneWriters, Isolated: isolated(deps.Log,
			"the orders of a voucher take long or fail; they share no transactions with others for now"),
	}, commitOptions(deps))
	return s
}

func commitOptions(deps Deps) lane.Options {
	return lane.Options{
		Writers: commitWriters, MaxBatch: maxCommitBatch, MaxQueue: maxCommitQueue,
		Timeout: commitTimeout, Observe: telemetry.Sizes(deps.Metrics.Batch),
	}
}

// isolated logs the first voucher that is isolated: where the database is away, all follow.
func isolated(log *slog.Logger, says string) func(voucherID string, cause error, first bool) {
	return func(voucherID string, cause error, first bool) {
		if first {
			log.WarnContext(context.Background(), says, slog.String("voucher_id", voucherID), slog.Any("error", cause)) //nolint:sloglint // the callers' texts are constants
		}
	}
}

func (s *syncSeller) drain() {}

func (s *syncSeller) close(ctx context.Context) {
	s.commits.Close(ctx)
	s.cancels.group.Close(ctx)
	s.settling.Wait()
}

func (s *syncSeller) open(_ string, refusal error) error { return refusal }

func (s *syncSeller) overload(context.Context, string, string) error { return nil }

func (s *syncSeller) locksItself() bool { return s.together != nil }

// commit makes orders in one transaction, under their users' locks: it takes those that are free, and gives them back
// behind the transaction. Who has no lock gets no order. The transaction reads the vouchers, so the cache is not asked.
func (s *syncSeller) commit(ctx context.Context, asked []*purchase) ([]model.Outcome, error) {
	defer s.lock(ctx, asked)()
	orders, made := make([]model.Order, 0, len(asked)), make([]model.Outcome, len(asked))
	for _, p := range asked {
		if p.refusal == nil {
			orders = append(orders, p.order)
		}
	}
	answers, err := s.deps.Store.CreateOrders(ctx, orders)
	if err != nil {
		return nil, err
	}
	for i, p := range asked {
		if made[i].Err = p.refusal; p.refusal == nil {
			made[i], answers = answers[0], answers[1:]
		}
	}
	return made, nil
}

// lock tries the locks of those who have none, all together. The function gives them back.
func (s *syncSeller) lock(ctx context.Context, asked []*purchase) (unlock func()) {
	names, tried := make([]string, 0, len(asked)), make([]*purchase, 0, len(asked))
	for _, p := range asked {
		if p.refusal = lost(p.lease); p.lease == nil { //nolint:contextcheck // the lock has a life of its own
			names, tried = append(names, model.UserLock(p.order.UserID)), append(tried, p)
		}
	}
	if len(tried) == 0 {
		return func() {}
	}
	began := time.Now()
	trace, group := s.deps.Trace.Group(ctx, "lock", len(tried), func(i int) model.Order { return tried[i].order })
	errs, free := s.together.TryAll(trace, names)
	group.End(nil, func(i int) error { return errs[i] })
	took := time.Since(began).Seconds()
	for i, p := range tried {
		s.deps.Metrics.LockWait.Observe(took)
		p.refusal = untaken(errs[i])
	}
	return func() {
		if err := free(); err != nil {
			s.deps.Log.WarnContext(ctx, "locks of users were not given back and end by themselves", slog.Any("error", err))
		}
	}
}

// sell creates the order in a shared transaction. A hang-up makes no difference: the lock is held until then.
func (s *syncSeller) sell(ctx context.Context, user *hold) (model.Order, error) {
	unique, err := ids.New()
	if err != nil {
		return model.Order{}, err
	}
	order := model.Order{
		ID: model.OrderID(unique, user.voucherID), VoucherID: user.voucherID, UserID: user.userID,
		Early: s.deps.Cache.Early(user.voucherID, user.groups), Trace: tracing.Of(ctx),
	}
	ticket := s.commits.Submit(ctx, &purchase{order: order, lease: user.lease})[0]
	outcome, err := ticket.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		s.settle(ctx, ticket, user.handOver(), order)
		return model.Order{}, model.Unavailable("It is not known yet whether the order was made.",
			fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, order.ID, err))
	}
	return s.answer(ctx, user, outcome.Order, cmp.Or(err, outcome.Err))
}

// settle keeps the lock until the order is decided, though the client was answered. The commits' bounds limit it.
func (s *syncSeller) settle(ctx context.Context, ticket *orderTicket, user *hold, order model.Order) {
	s.deps.Metrics.Unknown.Inc()
	ctx = context.WithoutCancel(ctx)
	s.settling.Go(func() {
		defer user.release(ctx)
		outcome, err := ticket.Wait(ctx)
		if errors.Is(err, lane.ErrNotRun) {
			return
		}
		s.deps.Log.InfoContext(ctx, "an order was decided after its client had been answered",
			slog.String("order_id", order.ID), slog.Bool("created", err == nil && outcome.Err == nil),
			slog.Any("error", errors.Join(err, outcome.Err)))
	})
}

func (s *syncSeller) answer(ctx context.Context, user *hold, made model.Order, err error) (model.Order, error) {
	switch {
	case err == nil:
		return made, nil
	case errors.Is(err, lane.ErrFull), errors.Is(err, lane.ErrClosed):
		return model.Order{}, lane.Undone("Too many orders are waiting.", err)
	case model.CodeOf(err) == model.CodeSoldOut:
		s.deps.Cache.SoldOut(user.voucherID)
	case model.CodeOf(err) == model.CodeNotFound:
		// The cache knew the voucher. Another reading tells whether it was taken back or its row is away for a moment.
		s.deps.Cache.Drop(user.voucherID)
		refusal := s.deps.Cache.Refusal(ctx, user.userID, user.voucherID, user.groups...)
		err = cmp.Or(refusal, error(model.Unavailable("The voucher was away.", err)))
	}
	err = fmt.Errorf("sell voucher %s: %w", user.voucherID, err)
	return model.Order{}, lane.Undone("The order could not be made.", err)
}

func (s *syncSeller) get(ctx context.Context, userID, orderID string, _ time.Duration) (model.Order, error) {
	order, err := s.deps.Store.Get(ctx, orderID)
	if err != nil {
		return model.Order{}, s.unheard(err)
	}
	return own(order, userID)
}

// unheard makes UNAVAILABLE of NOT_FOUND in another mode's database, whose processing orders are not seen.
func (s *syncSeller) unheard(err error) error {
	if model.CodeOf(err) != model.CodeNotFound {
		return err
	}
	return cmp.Or(s.deps.Selling(), err)
}

func (s *syncSeller) detail(ctx context.Context, orderID string) (model.OrderDetail, error) {
	detail, err := s.deps.Store.Detail(ctx, orderID)
	return detail, s.unheard(err)
}

func (s *syncSeller) cancel(ctx context.Context, asked model.Cancellation) (model.Order, bool, error) {
	canceled, err := s.cancels.do(ctx, asked)
	return canceled.Order, canceled.Changed, err
}

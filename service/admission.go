package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/batch"
	"seckill/internal/failpoint"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// reserveTimeout bounds one call to the hot copies. They answer in less than
	// a millisecond; what takes longer than this leaves too little of the
	// request's time to publish in.
	reserveTimeout = 2 * time.Second
	// publishTimeout bounds one message's way into the queue and back. It
	// outlives its requests, so that most of what they were told is unknown gets
	// known here, and is shorter than a stop may take.
	publishTimeout = 4 * time.Second
	// maxReserveGroup orders share one call to the hot copies, maxPublishGroup
	// one message: the queue takes no more in one, and gains nothing by it.
	maxReserveGroup = 500
	maxPublishGroup = 500
	// reserveWriters and publishWriters run at once: one prepares while the
	// other waits for the network, or for the disk.
	reserveWriters = 2
	publishWriters = 2
	// maxAdmitted requests are between reserving and their answer at once: two
	// full messages under way and two that gather behind them, half full.
	maxAdmitted = 1024
	// maxReserveQueue requests wait to be reserved; what more arrives could not
	// be served within its time anyway.
	maxReserveQueue = 8192
	// maxPublishQueue reservations wait to be published. Nobody who is reserved
	// should be turned away here, so it has room for those whose clients have
	// hung up, too.
	maxPublishQueue = 4 * maxReserveQueue
	// undoTimeout bounds giving a unit back in a hot copy; whatever it does not
	// manage the outbox does.
	undoTimeout = time.Second
)

// AdmissionCopies are the hot copies as admission needs them.
type AdmissionCopies interface {
	// Reserve takes one unit for each admission, or says of each why not. An
	// error means that nothing happened, or wraps model.ErrUnknownOutcome.
	Reserve(ctx context.Context, admissions []model.ReserveRequest) ([]model.ReserveResult, error)
	// Confirm tells of each reservation whether its hot copy is open still, and
	// with an error of none of which it is not known.
	Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error)
	// Release gives back the unit of a closed order; false means "later".
	Release(ctx context.Context, release model.Release) (applied bool, err error)
	// Pending finds an order that is not known to be persisted. An absent one of
	// a closed copy is model.ErrCopyClosed.
	Pending(ctx context.Context, orderID string) (model.Reservation, bool, error)
	// OrderOf finds a user's order: empty for none, with the reservation when it
	// is not known to be persisted.
	OrderOf(ctx context.Context, voucherID, userID string) (orderID string, pending *model.Reservation, err error)
	// OrdersOf is OrderOf of several buyers in one call. What cannot be told is
	// empty.
	OrdersOf(ctx context.Context, buyers []model.Buyer) ([]model.BuyersOrder, error)
	// Processing is one page of everybody's orders of a voucher that are not
	// known to be persisted, newest first; model.ErrCopyClosed.
	Processing(ctx context.Context, q model.OrderQuery) (model.OrderPage, error)
	// EachProcessing calls yield with all of them.
	EachProcessing(ctx context.Context, voucherID string, yield func(model.Order) error) error
	// Watch calls settled with orders that have left processing, and missed when
	// it may have lost some, until ctx ends.
	Watch(ctx context.Context, settled func(orderIDs []string), missed func()) error
}

// Publisher makes promises durable.
type Publisher interface {
	// Publish returns when the reservations are durably queued. After an error
	// they may be all the same.
	Publish(ctx context.Context, reservations []model.Reservation) error
}

// CanceledNotes are the outbox rows of closed orders.
type CanceledNotes interface {
	// DoneOrders removes those whose units are back in the hot copies.
	DoneOrders(ctx context.Context, orderIDs []string) error
}

// CopyDoctor takes wishes for rebuilds of hot copies. It never blocks.
type CopyDoctor interface {
	// Request asks for a rebuild if one is needed.
	Request(voucherID string)
	// Replace says that the copy of an epoch is wrong: it asks for a rebuild unless
	// there is a later one already.
	Replace(voucherID string, epoch int64)
	// Demand asks for a rebuild whatever the copy looks like.
	Demand(voucherID string)
}

// Admission is the road of an asynchronous order up to its promise: a unit is
// taken in the hot copy, the reservation is queued, and the copy's epoch looked
// at once more. Concurrent orders share each of these calls.
type Admission struct {
	hot         AdmissionCopies
	queue       Publisher
	notes       CanceledNotes
	rebuilds    CopyDoctor
	scriptLocks bool

	reserves  *batch.Group[model.ReserveRequest, model.ReserveResult]
	publishes *batch.Group[model.Reservation, error]
	held      *batch.Group[model.Buyer, model.BuyersOrder] // who is refused for the backlog may have an order
	waiters   *waiters
	backlog   *backlogWatch
	records   *recordReader
	jobs      sync.WaitGroup
	end       context.CancelFunc

	metrics *telemetry.Admission
	log     *slog.Logger
}

// AdmissionDeps is what Admission works with.
type AdmissionDeps struct {
	Copies   AdmissionCopies
	Queue    Publisher
	Backlog  BacklogReader // of the same queue
	Notes    CanceledNotes
	Records  CopyRecords
	Rebuilds CopyDoctor
	// ScriptLocks says that Copies looks at the user's lock itself, in the same
	// atomic step in which it takes the unit: then no free lock is taken.
	ScriptLocks bool
	// BacklogMaxAge is how old a voucher's oldest message may be before no more of
	// it is promised.
	BacklogMaxAge time.Duration
	Metrics       *telemetry.Admission
	Log           *slog.Logger
}

// NewAdmission makes an Admission for one Orders, which closes it.
func NewAdmission(deps AdmissionDeps) *Admission {
	a := &Admission{
		hot: deps.Copies, queue: deps.Queue, notes: deps.Notes, rebuilds: deps.Rebuilds, scriptLocks: deps.ScriptLocks,
		waiters: newWaiters(deps.Metrics), metrics: deps.Metrics, log: deps.Log,
		backlog: newBacklogWatch(deps.Backlog, deps.BacklogMaxAge, deps.Metrics, deps.Log),
		records: &recordReader{records: deps.Records, log: deps.Log},
	}
	a.reserves = batch.New(a.reserve, batch.Options{
		Writers: reserveWriters, MaxBatch: maxReserveGroup, MaxQueue: maxReserveQueue,
		Timeout: reserveTimeout, Observe: deps.Metrics.Reserved,
	})
	a.publishes = batch.New(a.publish, batch.Options{
		Writers: publishWriters, MaxBatch: maxPublishGroup, MaxQueue: maxPublishQueue,
		Timeout: publishTimeout, Observe: deps.Metrics.Published,
	})
	a.held = batch.New(a.hot.OrdersOf, batch.Options{
		Writers: reserveWriters, MaxBatch: maxReserveGroup, MaxQueue: maxReserveQueue, Timeout: reserveTimeout,
	})
	ctx, end := context.WithCancel(context.Background())
	a.end = end
	a.jobs.Go(func() { a.backlog.run(ctx) })
	a.jobs.Go(func() { a.watch(ctx) })
	return a
}

// close lets the reservations that are queued here be published.
func (a *Admission) close(ctx context.Context) {
	a.reserves.Close(ctx)
	a.publishes.Close(ctx)
	a.held.Close(ctx)
	a.end()
	a.jobs.Wait()
}

// reserve takes the units of one group.
func (a *Admission) reserve(ctx context.Context, admissions []model.ReserveRequest) ([]model.ReserveResult, error) {
	failpoint.Reach(failpoint.BeforeReserve)
	admitted, err := a.hot.Reserve(ctx, admissions)
	failpoint.Reach(failpoint.AfterReserve)
	return admitted, err
}

// publish queues the reservations of one group and tells of each whether it may
// be promised. A publish that fails undoes nothing: the message may be in the
// queue, and a unit that was given back would be sold twice. The reconciler
// publishes again what was not.
func (a *Admission) publish(ctx context.Context, reservations []model.Reservation) ([]error, error) {
	failpoint.Reach(failpoint.BeforePublish)
	if err := a.queue.Publish(ctx, reservations); err != nil {
		a.metrics.Unpublished(len(reservations))
		if failpoint.Has(failpoint.PublishUndoes) {
			a.undo(ctx, reservations)
		}
		return nil, fmt.Errorf("publish %d orders: %w", len(reservations), err)
	}
	failpoint.Reach(failpoint.AfterPublish)
	verdicts := a.confirm(ctx, reservations)
	failpoint.Reach(failpoint.BeforeAnswer)
	return verdicts, nil
}

// undo is a mistake that the tests build in to prove that they would notice.
func (a *Admission) undo(ctx context.Context, reservations []model.Reservation) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	for _, r := range reservations {
		_, _ = a.hot.Release(ctx, model.Release{OrderID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID})
	}
}

// notLoaded asks for a rebuild of a voucher whose hot copy is closed. That says
// nothing about the sale, least of all that it is sold out.
func (a *Admission) notLoaded(voucherID string) error {
	a.metrics.NotLoaded()
	a.rebuilds.Request(voucherID)
	if failpoint.Has(failpoint.MissingIsSoldOut) {
		return model.SoldOut()
	}
	return model.Unavailable("The sale is being loaded.", model.ErrCopyClosed)
}

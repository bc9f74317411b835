package sale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/ids"
	"seckill/internal/lane"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/internal/tracing"
	"seckill/model"
)

const (
	maxGroup     = 500 // orders share one call to the hot copies, or one message: the most that the queue takes in one
	groupWriters = 2   // of each group run at once: one prepares while one waits for network or disk
	// maxAdmitted requests are between reservation and answer: two full messages, and two half full behind them.
	maxAdmitted = 1024
	// maxReserveQueue requests wait to be reserved; a later one could not be served within its time anyway.
	maxReserveQueue = 8192
	// maxPublishQueue reservations wait to be published, also those of clients that hung up: none is turned away.
	maxPublishQueue = 4 * maxReserveQueue
	// undoTimeout bounds giving a unit back in a hot copy; the outbox gives back what was too late.
	undoTimeout = 3 * budget.Look
	// admissionAttempts is how often an order is reserved: a second obstacle is left to the client's next call.
	admissionAttempts = 2
)

// AsyncDeps is what asynchronous orders need besides.
type AsyncDeps struct {
	Hot   HotCopies
	Queue Queue
	// Released removes the outbox rows of orders whose units are back in the hot copies.
	Released func(ctx context.Context, orderIDs []string) error
	// Relay brings the returned units of a voucher to its hot copy, each to who waited for it.
	Relay func(ctx context.Context, voucherID string) error
	// Epochs reads from the database which epochs are the latest; it leaves out vouchers that do not exist.
	Epochs func(ctx context.Context, ids []string) (map[string]int64, error)
	// Rebuild asks for a rebuild if one is needed, or if the open epoch is wrong or earlier. It never blocks.
	Rebuild func(voucherID string, wrong int64)
	// ScriptLocks says that the hot copies look at the user's lock in the step in which they take the unit.
	ScriptLocks bool
	Backlog     Backlog // how long accepted orders wait in the queue
	Admission   *telemetry.Admission
}

// asyncSeller takes a unit, queues the reservation, checks the epoch, then promises. Concurrent orders share calls.
type asyncSeller struct {
	deps  Deps
	async AsyncDeps

	// Each of these three has a group for each server of hot copies.
	reserves  *lane.Keyed[model.ReserveRequest, admission]
	publishes *lane.Keyed[model.Reservation, error]
	held      *lane.Keyed[model.Buyer, model.BuyersOrder] // finds the orders of users who are refused for the backlog
	rows      *lane.Group[string, *model.Order]           // reads orders by id
	cancels   canceler
	waiters   *waiters
	epochs    *epochReader
	settling  sync.WaitGroup     // orders whose clients were answered before they were decided
	jobs      sync.WaitGroup     // what runs until the end
	end       context.CancelFunc // ends the jobs
}

func newAsyncSeller(deps Deps, async AsyncDeps) *asyncSeller {
	s := &asyncSeller{
		deps: deps, async: async, cancels: newCanceler(deps.Store), waiters: newWaiters(async.Admission),
		epochs: &epochReader{epochs: async.Epochs, log: deps.Log},
	}
	options := func(maxQueue int, timeout time.Duration, observe func(int)) lane.Options {
		return lane.Options{
			Writers: groupWriters, MaxBatch: maxGroup, MaxQueue: maxQueue, Timeout: timeout, Observe: observe,
		}
	}
	s.reserves = lane.NewKeyed(func(r model.ReserveRequest) string { return s.async.Hot.Node(r.VoucherID) },
		s.reserveGroup, options(maxReserveQueue, budget.Call, telemetry.Sizes(s.async.Admission.Reserved)))
	s.reserves.Chain(admission.answer)
	s.publishes = lane.NewKeyed(func(r model.Reservation) string { return s.async.Hot.Node(r.VoucherID) },
		s.publishGroup, options(maxPublishQueue, budget.Work, telemetry.Sizes(s.async.Admission.Published)))
	s.held = lane.NewKeyed(func(b model.Buyer) string { return s.async.Hot.Node(b.VoucherID) },
		s.async.Hot.OrdersOf, options(maxReserveQueue, budget.Call, nil))
	s.rows = lane.New(s.readRows, options(maxRowReads, lookTimeout, nil))
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	s.jobs.Go(func() { s.watch(ctx) })
	s.jobs.Go(func() { s.lookAround(ctx) })
	return s
}

func (s *asyncSeller) drain() { s.waiters.drain() }

// close lets the reservations under way be published, also those whose clients have been answered.
func (s *asyncSeller) close(ctx context.Context) {
	s.drain()
	s.reserves.Close(ctx)
	s.cancels.group.Close(ctx)
	s.settling.Wait()
	s.publishes.Close(ctx)
	s.held.Close(ctx)
	s.end()
	s.jobs.Wait()
	s.rows.Close(ctx)
}

// open has a closed hot copy rebuilt; any other refusal stays as it is.
func (s *asyncSeller) open(voucherID string, refusal error) error {
	if refusal != nil && errors.Is(refusal, model.ErrCopyClosed) {
		return s.notLoaded(voucherID)
	}
	return refusal
}

// notLoaded asks for a rebuild of a voucher whose copy is closed, which says nothing about the sale.
func (s *asyncSeller) notLoaded(voucherID string) error {
	s.async.Admission.NotLoaded.Inc()
	s.async.Rebuild(voucherID, 0)
	return model.Unavailable("The sale is being loaded.", model.ErrCopyClosed)
}

func (s *asyncSeller) overload(ctx context.Context, userID, voucherID string) error {
	if err := s.async.Backlog.Refusal(voucherID); err != nil {
		return cmp.Or(s.ordered(ctx, userID, voucherID), err)
	}
	return nil
}

func (s *asyncSeller) locksItself() bool { return s.async.ScriptLocks }

func (s *asyncSeller) sell(ctx context.Context, user *hold) (model.Order, error) {
	admitted, err := s.reserve(ctx, user)
	if err != nil {
		return model.Order{}, err
	}
	if admitted.Status != model.OrderProcessing {
		return s.settled(ctx, admitted.ID)
	}
	return s.published(ctx, admitted)
}

// admission is what a request for a unit became. A reserved order is queued with it, even if its client is gone.
type admission struct {
	model.ReserveResult

	published *lane.Ticket[model.Reservation, error] // nil: it is not reserved, or unqueued says why not
	unqueued  error
	locked    bool // its buyer holds a lock, which is given back before it is published
}

// answer wakes the buyer once, when the order is published, unless a lock is to be given back before.
func (a admission) answer(wake func()) {
	if a.published == nil || a.unqueued != nil || a.locked {
		wake()
		return
	}
	a.published.Then(wake)
}

// ordered is ALREADY_ORDERED when the user has an order; nil if not, or if the lookup fails.
func (s *asyncSeller) ordered(ctx context.Context, userID, voucherID string) error {
	held, err := s.held.Do(ctx, model.Buyer{VoucherID: voucherID, UserID: userID})
	switch {
	case err != nil || held.OrderID == "":
		return nil //nolint:nilerr // the request is refused anyway
	case held.Pending != nil:
		return model.AlreadyOrdered(held.Pending.Processing())
	}
	row, err := s.row(ctx, held.OrderID)
	if err != nil || row == nil || !row.Live() {
		return nil //nolint:nilerr // likewise
	}
	return model.AlreadyOrdered(*row)
}

// settled answers with the row of an order that left processing: the reserving call was sent twice.
func (s *asyncSeller) settled(ctx context.Context, orderID string) (model.Order, error) {
	row, err := s.row(ctx, orderID)
	if err == nil && row == nil {
		err = errors.New("it was settled, and has no row")
	}
	if err != nil {
		return model.Order{}, s.unknown(orderID, err)
	}
	return *row, nil
}

// reserve takes a unit and then gives the user's lock back: only in taking can requests or programs collide, not in
// publishing. Without a lease the hot copy itself looks whether another program has the lock.
func (s *asyncSeller) reserve(ctx context.Context, user *hold) (admission, error) {
	defer user.release(ctx)
	try := &reserving{seller: s, user: user}
	try.asked = model.ReserveRequest{
		VoucherID: user.voucherID, UserID: user.userID, Locked: user.taken(), Trace: tracing.Of(ctx),
		Early: s.deps.Cache.Early(user.voucherID, user.groups),
	}
	if err := try.newID(); err != nil {
		return admission{}, err
	}
	for range admissionAttempts {
		answer, err := try.ask(ctx)
		if err != nil || answer.Err == nil {
			return answer, err
		}
		try.epoch = answer.Epoch
		if err := try.retryable(ctx, answer.Err); err != nil {
			return admission{}, err
		}
	}
	return admission{}, model.Unavailable("Your earlier order is just being closed.", nil)
}

type reserving struct {
	seller *asyncSeller
	user   *hold
	asked  model.ReserveRequest
	epoch  int64 // of the hot copy that refused it
}

func (r *reserving) newID() error {
	unique, err := ids.New()
	r.asked.OrderID = model.OrderID(unique, r.asked.VoucherID)
	return err
}

// ask asks the hot copy. A hang-up changes nothing from here: the lock stays, and a reservation is published.
func (r *reserving) ask(ctx context.Context) (admission, error) {
	if err := lost(r.user.lease); err != nil { //nolint:contextcheck // the lock has a life of its own
		return admission{}, err
	}
	ticket, err := r.seller.reserves.Submit(ctx, r.asked)
	if err != nil {
		return admission{}, lane.Undone("Too many orders are waiting.", err)
	}
	result, err := ticket.Wait(ctx)
	// As far as is known, it is neither reserved nor refused.
	if result.Err != nil && errors.Is(result.Err, model.ErrUnknownOutcome) {
		err = result.Err
	}
	switch {
	case err == nil:
		return result, nil
	case ctx.Err() != nil:
		r.follow(ctx, ticket)
		return admission{}, r.seller.unknown(r.asked.OrderID, err)
	case errors.Is(err, model.ErrUnknownOutcome):
		return admission{}, r.seller.unknown(r.asked.OrderID, err)
	default:
		return admission{}, lane.Undone("The order could not be placed.",
			fmt.Errorf("reserve order %s: %w", r.asked.OrderID, err))
	}
}

// follow gives back the lock of a request whose client was answered. The queue bounds such requests, a timeout each.
func (r *reserving) follow(ctx context.Context, ticket *lane.Ticket[model.ReserveRequest, admission]) {
	if !r.user.taken() {
		return
	}
	user := r.user.handOver()
	ctx = context.WithoutCancel(ctx)
	r.seller.settling.Go(func() {
		defer user.release(ctx)
		admitted, err := ticket.Wait(ctx)
		if err == nil && admitted.unqueued != nil {
			r.seller.deps.Log.WarnContext(ctx, "a reserved order is left to the reconciler",
				slog.String("order_id", admitted.ID), slog.Any("error", admitted.unqueued))
		}
	})
}

// published waits until an order is promised. The unit stays taken also when it is not.
func (s *asyncSeller) published(ctx context.Context, admitted admission) (model.Order, error) {
	if admitted.unqueued != nil {
		return model.Order{}, s.unknown(admitted.ID, admitted.unqueued)
	}
	verdict, err := admitted.published.Wait(ctx)
	if err == nil {
		err = verdict
	}
	if err != nil {
		return model.Order{}, s.unknown(admitted.ID, err)
	}
	return admitted.Processing(), nil
}

// unknown answers for an order of which it is not known whether it was made.
func (s *asyncSeller) unknown(orderID string, cause error) error {
	s.deps.Metrics.Unknown.Inc()
	return model.Unavailable("It is not known yet whether the order was made.",
		fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, orderID, cause))
}

// reserveGroup takes the units of one group, and queues what it has reserved.
func (s *asyncSeller) reserveGroup(ctx context.Context, asked []model.ReserveRequest) ([]admission, error) {
	failpoint.Reach(failpoint.BeforeReserve)
	results, err := s.async.Hot.Reserve(ctx, asked)
	failpoint.Reach(failpoint.AfterReserve)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // nothing takes a reservation out of the queue
	admitted := make([]admission, len(results))
	for i, result := range results {
		admitted[i].ReserveResult, admitted[i].locked = result, asked[i].Locked
		if result.Err == nil && result.Status == model.OrderProcessing {
			admitted[i].published, admitted[i].unqueued = s.publishes.Submit(ctx, result.Reservation)
		}
	}
	return admitted, nil
}

// publishGroup queues a group's reservations, and says of each why it must not be promised. A failed publish undoes
// nothing, because the message may be queued; the reconciler publishes what is in no message.
func (s *asyncSeller) publishGroup(ctx context.Context, reservations []model.Reservation) ([]error, error) {
	failpoint.Reach(failpoint.BeforePublish)
	if err := s.async.Queue.Publish(ctx, reservations); err != nil {
		s.async.Admission.Unpublished.Add(float64(len(reservations)))
		return nil, fmt.Errorf("publish %d orders: %w", len(reservations), err)
	}
	failpoint.Reach(failpoint.AfterPublish)
	verdicts := s.confirm(ctx, reservations)
	failpoint.Reach(failpoint.BeforeAnswer)
	return verdicts, nil
}

// confirm looks at the epochs after the acknowledgement, and says of each reservation why it must not be promised; nil:
// it may be. A rebuild begins the next epoch in the database, closes the hot copy, then asks the queue for its last
// message. So while either epoch is unchanged, it waits for our message. The hot copy alone is not enough: two
// instances may see two Redis servers, by mistake or after a fail-over, each with an open copy. In a database outage it
// must do, because accepting needs no database.
func (s *asyncSeller) confirm(ctx context.Context, reservations []model.Reservation) []error {
	ctx, cancel := context.WithTimeout(ctx, budget.Look)
	defer cancel()
	var epochs map[string]int64
	var reading sync.WaitGroup
	reading.Go(func() { epochs = s.epochs.read(ctx, reservations) })
	open, err := s.async.Hot.Confirm(ctx, reservations)
	reading.Wait()
	verdicts := make([]error, len(reservations))
	for i, r := range reservations {
		// A voucher that the database does not know is none that it confirms.
		if i < len(open) && open[i] && (epochs == nil || epochs[r.VoucherID] == r.Epoch) {
			continue
		}
		s.async.Admission.Unconfirmed.Inc()
		verdicts[i] = fmt.Errorf("order %s was published, and its epoch %d is not known to be open: %w",
			r.ID, r.Epoch, cmp.Or(err, model.ErrCopyClosed))
	}
	return verdicts
}

// epochReader reads the latest epochs from the database. After an error it rests, to slow no order down.
type epochReader struct {
	epochs  func(ctx context.Context, ids []string) (map[string]int64, error)
	silent  atomic.Pointer[time.Time] // until when it is not asked; nil: it is
	trouble telemetry.Trouble
	log     *slog.Logger
}

// read returns what is known; nothing while the database is away.
func (r *epochReader) read(ctx context.Context, reservations []model.Reservation) map[string]int64 {
	if silent := r.silent.Load(); silent != nil && time.Now().Before(*silent) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, budget.Glance)
	defer cancel()
	epochs, err := r.epochs(ctx, model.VouchersOf(reservations))
	r.trouble.Note(ctx, r.log, err, "the database does not tell the epochs; the hot copies alone confirm orders",
		"the database tells the epochs again")
	if err != nil {
		silent := time.Now().Add(budget.Look)
		r.silent.Store(&silent)
		return nil
	}
	return epochs
}

// retryable deals with a hot copy's refusal: nil when the call is worth repeating once, else the buyer's refusal.
func (r *reserving) retryable(ctx context.Context, refusal error) error {
	refused, ok := errors.AsType[*model.Error](refusal)
	switch {
	case errors.Is(refusal, model.ErrCopyClosed):
		return r.closed(ctx)
	case errors.Is(refusal, model.ErrOrderClosed): // an order of this id is closed: it cannot be this request's
		return r.newID()
	case errors.Is(refusal, model.ErrUserLocked):
		return lockBusy(refusal)
	case ok && refused.Code == model.CodeAlreadyOrdered && refused.OrderStatus == "":
		return r.marked(ctx, refused.OrderID)
	case ok && refused.Code == model.CodeSoldOut:
		r.seller.deps.Cache.SoldOut(r.asked.VoucherID)
	}
	return refusal
}

// closed answers for a closed hot copy: by window and state if they refuse anyway. The cache tells the rest.
func (r *reserving) closed(ctx context.Context) error {
	r.seller.deps.Cache.Closed(r.asked.VoucherID)
	err := r.seller.deps.Cache.Refusal(ctx, r.asked.UserID, r.asked.VoucherID, r.user.groups...)
	if err == nil || errors.Is(err, model.ErrCopyClosed) {
		return r.seller.notLoaded(r.asked.VoucherID)
	}
	return err
}

// marked asks the database for the order that the user's mark names and that is not reserved any more. A live one is
// the answer, the mark of a closed one is taken away, and one refused after its admission shows that the copy is stale.
func (r *reserving) marked(ctx context.Context, orderID string) error {
	row, err := r.seller.row(ctx, orderID)
	if err != nil {
		return lane.Undone("Your earlier order could not be looked up.", err)
	}
	if row == nil {
		if row, err = r.secondLook(ctx, orderID); err != nil {
			return err
		}
	}
	switch {
	case row == nil: // a row is lost, or the copy is of another database: only a rebuild can tell who may buy
		r.seller.deps.Log.ErrorContext(ctx, "a hot copy knows an order that the database does not; it is rebuilt",
			slog.String("order_id", orderID), slog.String("voucher_id", r.asked.VoucherID),
			slog.String("user_id", r.asked.UserID))
		return r.stale("lost")
	case row.Live():
		return model.AlreadyOrdered(*row)
	case row.RefusedAfterAdmission():
		return r.stale("refused")
	}
	applied, err := r.seller.async.Hot.ReleaseAll(ctx, r.asked.VoucherID, []model.Release{row.Release()})
	if errors.Is(err, model.ErrNeedsOutbox) {
		applied, err = true, r.seller.async.Relay(ctx, r.asked.VoucherID)
	}
	if err != nil {
		return model.Unavailable("Your earlier order could not be closed.",
			fmt.Errorf("release order %s: %w", row.ID, err))
	}
	if !applied {
		return r.closed(ctx)
	}
	r.seller.async.Admission.StaleMarks.WithLabelValues("released").Inc()
	return nil
}

// secondLook looks once more for an order that had no row: reserved or committed in between, it needs no rebuild.
func (r *reserving) secondLook(ctx context.Context, orderID string) (*model.Order, error) {
	pending, found, err := r.seller.async.Hot.Pending(ctx, orderID)
	switch {
	case found && err == nil:
		return nil, model.AlreadyOrdered(pending.Processing())
	case errors.Is(err, model.ErrCopyClosed):
		return nil, r.closed(ctx)
	case err != nil:
		return nil, model.Unavailable("Your earlier order could not be looked up.",
			fmt.Errorf("look up order %s: %w", orderID, err))
	}
	poll.Pause(ctx, budget.Glance)
	return r.seller.row(ctx, orderID)
}

func (r *reserving) stale(mark string) error {
	r.seller.async.Admission.StaleMarks.WithLabelValues(mark).Inc()
	r.seller.async.Rebuild(r.asked.VoucherID, r.epoch)
	return model.Unavailable("The sale is being loaded.", nil)
}

package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/batch"
	"seckill/internal/failpoint"
	"seckill/internal/ids"
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
	// maxPublishQueue reservations wait to be published. None should be turned away
	// here, so it has room for those whose clients have hung up, too.
	maxPublishQueue = 4 * maxReserveQueue
	// undoTimeout bounds giving a unit back in a hot copy; what it does not manage
	// the outbox does.
	undoTimeout = time.Second
	// admissionAttempts is how often an order is reserved: once more after what
	// stood in its way was cleared. What then stands there was put there meanwhile,
	// and the client's next call deals with it.
	admissionAttempts = 2
	// confirmTimeout bounds the look at the epoch behind an acknowledged message.
	confirmTimeout = time.Second
	// recordTimeout bounds the database's part of it. It answers in a
	// millisecond; one that does not must not hold up what needs no database.
	recordTimeout = 250 * time.Millisecond
	// recordPause is for how long a database that did not answer is not asked.
	recordPause = time.Second
)

// AsyncDeps is what asynchronous orders need besides.
type AsyncDeps struct {
	Hot   HotCopies
	Queue Queue
	// Released removes the outbox rows of orders whose units are back in the hot
	// copies.
	Released func(ctx context.Context, orderIDs []string) error
	// Epochs reads what the database says about hot copies; it leaves out vouchers
	// that do not exist.
	Epochs func(ctx context.Context, ids []string) (map[string]model.EpochRecord, error)
	// Rebuild asks for a rebuild if one is needed, and also if the hot copy is of the
	// wrong epoch or of an earlier one. It never blocks.
	Rebuild func(voucherID string, wrong int64)
	// ScriptLocks says that the hot copies look at the user's lock in the step in
	// which they take the unit.
	ScriptLocks bool
	// BacklogMaxAge is how old a voucher's oldest message may be before no more of
	// it is promised.
	BacklogMaxAge time.Duration
	Admission     *telemetry.Admission
}

// asyncSeller sells from the hot copies, up to the promise: a unit is taken, the
// reservation is queued, and the hot copy's epoch looked at once more. Concurrent
// orders share each of these calls.
type asyncSeller struct {
	OrderDeps
	AsyncDeps

	reserves  *batch.Group[model.ReserveRequest, model.ReserveResult]
	publishes *batch.Group[model.Reservation, error]
	held      *batch.Group[model.Buyer, model.BuyersOrder] // a request refused for the backlog may have an order
	rows      *batch.Group[string, *model.Order]           // reads by id
	waiters   *waiters
	backlog   *backlogWatch
	epochs    *epochReader
	settling  sync.WaitGroup // orders whose clients were answered before they were decided
	jobs      sync.WaitGroup
	end       context.CancelFunc
}

func newAsyncSeller(deps OrderDeps, async AsyncDeps) *asyncSeller {
	s := &asyncSeller{
		OrderDeps: deps, AsyncDeps: async, waiters: newWaiters(async.Admission),
		backlog: newBacklogWatch(async.Queue, async.BacklogMaxAge, async.Admission, deps.Log),
		epochs:  &epochReader{epochs: async.Epochs, log: deps.Log},
	}
	s.reserves = batch.New(s.reserveGroup, batch.Options{
		Writers: reserveWriters, MaxBatch: maxReserveGroup, MaxQueue: maxReserveQueue,
		Timeout: reserveTimeout, Observe: s.Admission.Reserved,
	})
	s.publishes = batch.New(s.publishGroup, batch.Options{
		Writers: publishWriters, MaxBatch: maxPublishGroup, MaxQueue: maxPublishQueue,
		Timeout: publishTimeout, Observe: s.Admission.Published,
	})
	s.held = batch.New(s.Hot.OrdersOf, batch.Options{
		Writers: reserveWriters, MaxBatch: maxReserveGroup, MaxQueue: maxReserveQueue, Timeout: reserveTimeout,
	})
	s.rows = batch.New(s.readRows, batch.Options{
		Writers: rowReaders, MaxBatch: maxRowBatch, MaxQueue: maxRowReads, Timeout: lookTimeout,
	})
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	s.jobs.Go(func() { s.backlog.run(ctx) })
	s.jobs.Go(func() { s.watch(ctx) })
	return s
}

func (s *asyncSeller) drain() { s.waiters.drain() }

// close lets the reservations under way be published, also behind their clients.
func (s *asyncSeller) close(ctx context.Context) {
	s.drain()
	s.reserves.Close(ctx)
	s.settling.Wait()
	s.publishes.Close(ctx)
	s.held.Close(ctx)
	s.end()
	s.jobs.Wait()
	s.rows.Close(ctx)
}

func (s *asyncSeller) refusal(ctx context.Context, userID, voucherID string) error {
	err := s.Cache.Refusal(ctx, userID, voucherID)
	if errors.Is(err, model.ErrCopyClosed) {
		return s.notLoaded(voucherID)
	}
	return err
}

// notLoaded asks for a rebuild of a voucher whose hot copy is closed. That says
// nothing about the sale, least of all that it is sold out.
func (s *asyncSeller) notLoaded(voucherID string) error {
	s.Admission.NotLoaded()
	s.Rebuild(voucherID, 0)
	return withDefect(model.Unavailable("The sale is being loaded.", model.ErrCopyClosed))
}

// overload refuses while too many orders wait; nil while they do not.
func (s *asyncSeller) overload(ctx context.Context, userID, voucherID string) error {
	if err := s.backlog.refusal(voucherID); err != nil {
		return cmp.Or(s.ordered(ctx, userID, voucherID), err)
	}
	return nil
}

func (s *asyncSeller) locksItself() bool { return s.ScriptLocks }

// sell reserves a unit and queues the order.
func (s *asyncSeller) sell(ctx context.Context, lease model.Lease, userID, voucherID string) (model.Order, error) {
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
// told: that promises nothing new. Anything else is nil.
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

// settled answers with the row of an order whose reservation had to be sent
// again, and which was published and persisted in between.
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

// reserve takes a unit under the user's lock, or under none (then the hot copy
// looks whether another holder has it), and gives the lock back as soon as that is
// decided.
//
// The user's lock covers the reserving and not the publishing. Taking the unit
// is the one step in which two requests of a user, or a request and another
// program that holds the user's lock, could meet; it is atomic, and what follows
// changes nothing that another program could decide differently. And where the
// script looks at the lock by itself there is no lock at all once the unit is
// taken: both ways must look the same from outside.
func (s *asyncSeller) reserve(ctx context.Context, lease model.Lease, userID, voucherID string) (model.Reservation, error) {
	try := &reserving{asyncSeller: s, lease: lease}
	defer try.giveBack(ctx)
	try.asked = model.ReserveRequest{VoucherID: voucherID, UserID: userID, Locked: lease != nil}
	unique, err := ids.New()
	if err != nil {
		return model.Reservation{}, err
	}
	try.asked.OrderID = model.OrderID(unique, voucherID)
	for range admissionAttempts {
		answer, err := try.ask(ctx)
		if err != nil {
			return model.Reservation{}, err
		}
		if answer.Err == nil {
			return answer.Reservation, nil
		}
		try.epoch = answer.Epoch
		if err := try.overcome(ctx, answer.Err); err != nil {
			return model.Reservation{}, err
		}
	}
	return model.Reservation{}, model.Unavailable("Your earlier order is just being closed.", nil)
}

// reserving is one order's attempt to get a unit.
type reserving struct {
	*asyncSeller

	lease model.Lease // nil: none, or another goroutine gives it back
	asked model.ReserveRequest
	epoch int64 // of the hot copy that refused it
}

func (r *reserving) giveBack(ctx context.Context) { r.unlock(ctx, r.lease, r.asked.UserID) }

// ask asks the hot copy for the unit. From here on a client that hangs up
// changes nothing: the unit is taken or not, the user's lock is held until that
// is known, and what is taken is published.
func (r *reserving) ask(ctx context.Context) (model.ReserveResult, error) {
	if err := lost(r.lease); err != nil { //nolint:contextcheck // the lock has a life of its own
		return model.ReserveResult{}, err
	}
	ticket, err := r.reserves.Submit(ctx, r.asked)
	if err != nil {
		return model.ReserveResult{}, batch.Undone("Too many orders are waiting.", err)
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
		return model.ReserveResult{}, batch.Undone("The order could not be placed.",
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
		if _, err := r.publishes.Submit(ctx, admitted.Reservation); err != nil {
			r.Log.WarnContext(ctx, "a reserved order is left to the reconciler",
				slog.String("order_id", admitted.ID), slog.Any("error", err))
		}
	})
}

// publish queues a reservation in a message it shares with others. The unit
// stays taken whatever comes of it.
func (s *asyncSeller) publish(ctx context.Context, reservation model.Reservation) (model.Order, error) {
	// A client that hangs up must not take its reservation out of the queue.
	ticket, err := s.publishes.Submit(context.WithoutCancel(ctx), reservation)
	if err != nil {
		return model.Order{}, s.unknown(reservation.ID, err)
	}
	verdict, err := ticket.Wait(ctx)
	if err = errors.Join(err, verdict); err != nil {
		return model.Order{}, s.unknown(reservation.ID, err)
	}
	return reservation.Processing(), nil
}

// unknown answers for an order of which it is not known whether it was made.
func (s *asyncSeller) unknown(orderID string, cause error) error {
	s.Metrics.Unknown()
	return model.Unavailable("It is not known yet whether the order was made.",
		fmt.Errorf("%w: order %s: %w", model.ErrUnknownOutcome, orderID, cause))
}

// reserveGroup takes the units of one group.
func (s *asyncSeller) reserveGroup(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error) {
	failpoint.Reach(failpoint.BeforeReserve)
	admitted, err := s.Hot.Reserve(ctx, asked)
	failpoint.Reach(failpoint.AfterReserve)
	return admitted, err
}

// publishGroup queues the reservations of one group and tells of each whether it may
// be promised. A publish that fails undoes nothing: the message may be in the
// queue, and a unit that was given back would be sold twice. The reconciler
// publishes again what was not.
func (s *asyncSeller) publishGroup(ctx context.Context, reservations []model.Reservation) ([]error, error) {
	failpoint.Reach(failpoint.BeforePublish)
	if err := s.Queue.Publish(ctx, reservations); err != nil {
		s.Admission.Unpublished(len(reservations))
		s.defectAfterPublish(ctx, reservations)
		return nil, fmt.Errorf("publish %d orders: %w", len(reservations), err)
	}
	failpoint.Reach(failpoint.AfterPublish)
	verdicts := s.confirm(ctx, reservations)
	failpoint.Reach(failpoint.BeforeAnswer)
	return verdicts, nil
}

// confirm looks at the epochs once more behind an acknowledged message, and
// tells of each reservation why it must not be promised; nil when it may.
//
// A rebuild first begins another epoch in the database, then closes the hot
// copy, and only then asks how long the queue is: an order whose group still
// finds either of them as it was stands before that, and counts. The hot copy alone would do,
// were there only one: instances that look at two different Redis servers, by
// mistake or after a fail-over, find each their own copy open. The database
// knows better. When it is away the hot copy must do, because this road works
// without a database.
func (s *asyncSeller) confirm(ctx context.Context, reservations []model.Reservation) []error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	var records map[string]model.EpochRecord
	var reading sync.WaitGroup
	reading.Go(func() { records = s.epochs.read(ctx, reservations) })
	open, err := s.Hot.Confirm(ctx, reservations)
	reading.Wait()
	verdicts := make([]error, len(reservations))
	for i, r := range reservations {
		record, known := records[r.VoucherID]
		if i < len(open) && open[i] && (!known || record.Epoch == r.Epoch) {
			continue
		}
		s.Admission.Unconfirmed(1)
		verdicts[i] = fmt.Errorf("order %s was published, and its epoch %d is not known to be open: %w",
			r.ID, r.Epoch, cmp.Or(err, model.ErrCopyClosed))
	}
	return verdicts
}

// epochReader reads the database's records of hot copies while it answers.
type epochReader struct {
	epochs func(ctx context.Context, ids []string) (map[string]model.EpochRecord, error)
	silent atomic.Int64 // nanoseconds since 1970 until which it is not asked
	log    *slog.Logger
}

// read returns what is known; nothing while the database is away.
func (r *epochReader) read(ctx context.Context, reservations []model.Reservation) map[string]model.EpochRecord {
	was := r.silent.Load()
	if time.Now().UnixNano() < was {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	records, err := r.epochs(ctx, model.VouchersOf(reservations))
	if err != nil {
		r.silent.Store(time.Now().Add(recordPause).UnixNano())
		if was == 0 {
			r.log.WarnContext(ctx, "the database does not tell the epochs; the hot copies alone confirm orders", slog.Any("error", err))
		}
		return nil
	}
	if was != 0 && r.silent.CompareAndSwap(was, 0) {
		r.log.InfoContext(ctx, "the database tells the epochs again")
	}
	return records
}

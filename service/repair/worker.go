// Package repair is what puts right, changes or ends what lies behind the orders. In the order mode async it loads the
// hot copies (Rebuilder), finishes what dead processes have left (Reconciler, which one elected instance runs),
// compares both sides order by order (Auditor), brings administrators' changes to the hot copies (Stock), replays dead
// letters (Replayer) and changes the order mode (ModeChange). In both modes it expires unpaid orders and publishes
// events.
//
// internal/app runs it, and the commands of an operator use its parts. It settles through the package persist.
//
// Read reconcile.go first, which calls outbox.go, stranded.go and drift.go; then rebuild.go with rebuild_job.go.
package repair

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/model"
	"seckill/service/persist"
)

// Worker holds the parts that work for one database, those of the package persist among them.
type Worker struct {
	Rebuilder  *Rebuilder
	Settler    *persist.Settler
	Auditor    *Auditor
	Stock      *Stock
	Persister  *persist.Persister
	Replayer   *Replayer
	Reconciler *Reconciler
	// Relay brings the returned units of one voucher to its hot copy.
	Relay func(ctx context.Context, voucherID string) error
}

// OthersConsume reports whether this instance may leave the queue to the one that is elected to reconcile. Orders that
// one instance persists share transactions; spread over four instances, they share 0.4 times as much. A mistake about
// who is elected costs that, and no order waits longer than budget.Look for it, but those that the queue has handed to
// an instance which stands still: the queue hands them on when their time for a sign of life is over (ackWait in
// package queue, 6 s).
func (w *Worker) OthersConsume() bool {
	return !w.Reconciler.elected.Load() && w.Reconciler.deps.Backlog.Younger(budget.Look)
}

// New puts a worker together. Nothing runs yet. The reconciler is not elected while selling answers an error.
func New(parts Deps, by Elector, selling func() error) *Worker {
	rebuilder := newRebuilder(parts)
	persisting := persist.Deps{
		Database: parts.Database, Epochs: parts.Epochs, Hot: parts.Hot, Queue: parts.Queue, Rebuild: rebuilder.Ask, Metrics: parts.Metrics, Log: parts.Log,
	}
	settler := persist.NewSettler(persisting)
	auditor := &Auditor{deps: parts, settler: settler, rebuilds: rebuilder}
	relay := &outbox{deps: parts, settler: settler, rebuilds: rebuilder}
	w := &Worker{
		Rebuilder: rebuilder, Settler: settler, Auditor: auditor, Persister: persist.New(persisting, settler),
		Stock:    &Stock{deps: parts, rebuilder: rebuilder, auditor: auditor},
		Replayer: &Replayer{deps: parts}, Relay: relay.of,
		Reconciler: &Reconciler{
			deps: parts, settler: settler, rebuilds: rebuilder,
			outbox:   relay,
			stranded: &stranded{deps: parts, settler: settler, rebuilds: rebuilder},
			drift:    newDriftWatch(auditor),
		},
	}
	w.Reconciler.election = election{Elector: by, job: "reconciler", may: selling, term: w.Reconciler.term}
	return w
}

// Deps are what all parts of a worker work with.
type Deps struct {
	Database Database
	Epochs   Epochs
	Hot      HotCopies
	Queue    Queue
	Backlog  Backlog
	// Mode reads the database's order mode.
	Mode    func(ctx context.Context) (model.ModeRecord, error)
	Metrics *telemetry.Worker
	// AdminLog is needed where administrators ask for something.
	AdminLog AdminLog
	Log      *slog.Logger
}

// AdminLog keeps what administrators change.
type AdminLog interface {
	// Record writes an entry of what no transaction of the database does.
	Record(ctx context.Context, change model.AdminChange) error
}

// record notes that an administrator asks for something, before it is done. An empty adminID is nobody: a command.
func (p Deps) record(ctx context.Context, adminID, action, subject string, before any) error {
	if adminID == "" {
		return nil
	}
	document, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("write down %s of %s: %w", action, subject, err)
	}
	return p.AdminLog.Record(ctx, model.AdminChange{Actor: adminID, Action: action, Subject: subject, Before: document})
}

// Database is the truth about vouchers and orders.
type Database interface {
	persist.Database

	// GetMany returns the vouchers that exist, with the database's clock as their ServerTime.
	GetMany(ctx context.Context, ids []string) (map[string]model.Voucher, error)
	// Audit counts the database's side.
	Audit(ctx context.Context, voucherID string) (model.Audit, error)
	// Find reads orders by id; absent ones are left out.
	Find(ctx context.Context, ids []string) (map[string]model.Order, error)
	// Failed reads those of the orders that have failed.
	Failed(ctx context.Context, ids []string) (map[string]model.Order, error)
	// Live calls yield for every live order of a voucher; of each only the id, voucher and user are given.
	Live(ctx context.Context, voucherID string, yield func(model.Order) error) error
	// After reads up to limit of the outbox by voucher, the oldest first, behind the given release.
	After(ctx context.Context, last model.Release, limit int) ([]model.Release, error)
	// Done removes rows of the outbox.
	Done(ctx context.Context, ids []int64) error
	ChangeStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (model.Voucher, error)
	// IntendStock announces a smaller stock; needed is false when ChangeStock alone gives the answer.
	IntendStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (intent model.StockIntent, needed bool, err error)
	// Intents lists the intents that are older.
	Intents(ctx context.Context, olderThan time.Duration) ([]model.StockIntent, error)
	// DropIntent gives an intent up. The next Apply overwrites the stock that the hot copy may have been lowered to.
	DropIntent(ctx context.Context, intent model.StockIntent) error
}

// Epochs is what the database says about hot copies.
type Epochs interface {
	persist.Epochs

	// Watched lists the vouchers whose hot copies must be loaded, those on sale first.
	Watched(ctx context.Context) ([]model.EpochRecord, error)
	// Kept lists those, every voucher on sale now or later or with an open epoch, and those with returns or rebuilds.
	Kept(ctx context.Context) ([]model.EpochRecord, error)
	// Close begins the next epoch, logged for an administrator ("" is nobody). ErrSuperseded: the latest is not from.
	Close(ctx context.Context, voucherID string, from int64, adminID string) (model.EpochRecord, error)
	SetBarrier(ctx context.Context, voucherID string, epoch int64, barrier uint64) error
	Progress(ctx context.Context, voucherID string, epoch int64) error
	// Snapshot shows a voucher and its orders at one instant. ErrSuperseded unless the epoch is latest and not open.
	Snapshot(ctx context.Context, voucherID string, epoch int64, work func(model.Snapshot) error) error
	Open(ctx context.Context, voucherID string, epoch int64) error
}

// HotCopies are the hot copies.
type HotCopies interface {
	persist.HotCopies

	// Incarnation is a word that changes whenever a Redis may have lost its data.
	Incarnation(ctx context.Context) (string, error)
	// Quiet tells of each hot copy whether it is loaded, reserves nothing, and has as many buyers as units taken.
	Quiet(ctx context.Context, records []model.EpochRecord) []bool
	// Pending finds an order that is not known to be persisted.
	Pending(ctx context.Context, orderID string) (model.Reservation, bool, error)
	// Marks calls yield for every buyer of an epoch; some may come twice.
	Marks(ctx context.Context, voucherID string, epoch int64, yield func(userID, orderID string) error) error
	// Pendings calls yield for every reservation of an epoch, closed or not.
	Pendings(ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error) error
	// Due lists the open epoch's older reservations, by Redis' clock. One without a user is noted and absent.
	Due(ctx context.Context, voucherID string, olderThan time.Duration, limit int) ([]model.Reservation, error)
	// Touch makes reservations young again.
	Touch(ctx context.Context, reservations []model.Reservation) error
	// Mend notes orders that are reserved and are not noted as due, and forgets those that are noted and not reserved.
	Mend(ctx context.Context, voucherID string, orderIDs []string) error

	// Reserve takes one unit for each request, or says of each why not.
	Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error)
	// Confirm tells of each reservation whether its hot copy is open still.
	Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error)
	// ReleaseAll is Release for one voucher's rows. After "later" or an error some may be back; repeat it.
	ReleaseAll(ctx context.Context, voucherID string, releases []model.Release) (applied bool, err error)
	// Apply brings the database's voucher to its hot copy, and does nothing when the hot copy has something newer.
	// False means that the hot copy is closed. An *model.OutgrownError says that it has to be rebuilt for that.
	Apply(ctx context.Context, v model.Voucher) (applied bool, err error)
	// Lower lowers the stock. CONFLICT says that more units are taken.
	Lower(ctx context.Context, voucherID string, stock, revision int64) error

	// Close closes the hot copy for the record's epoch. It frees all keys but those of the last opened epoch.
	Close(ctx context.Context, record model.EpochRecord) error
	// Load loads live orders and carried reservations in any order. The first call, without any, begins it.
	Load(ctx context.Context, record model.EpochRecord, live []model.Order, carried []model.Reservation) error
	// LoadCooling loads users who wait before another order.
	LoadCooling(ctx context.Context, record model.EpochRecord, cooling []model.Cooling) error
	// Open frees the keys of the epoch that was open before.
	Open(ctx context.Context, record model.EpochRecord, v model.Voucher, missing int64) error
	// Abandon frees the keys of an epoch that will not be opened.
	Abandon(ctx context.Context, record model.EpochRecord)
}

// Queue carries reservations to the workers, and keeps the dead letters.
type Queue interface {
	persist.Queue

	// Publish returns when the reservations are durably queued. After an error they may be queued all the same.
	Publish(ctx context.Context, reservations []model.Reservation) error
	Backlog(ctx context.Context) (model.Backlog, error)
	// BacklogOf is Backlog of the messages that may carry orders of one voucher; only the last sequence is that of all.
	BacklogOf(ctx context.Context, voucherID string) (model.Backlog, error)
	// PendingOf is BacklogOf without the messages that carry no order of the voucher.
	PendingOf(ctx context.Context, voucherID string) (model.Backlog, error)
	// Buried names the orders that have a dead letter.
	Buried(ctx context.Context) (map[string]bool, error)
	DeadLetter(ctx context.Context, sequence uint64) (model.DeadLetter, error)
	RemoveDeadLetter(ctx context.Context, sequence uint64) error
}

// Backlog waits for the consumer of the queue.
type Backlog interface {
	// Await waits until every order of a voucher is decided that came up to a sequence.
	Await(ctx context.Context, voucherID string, sequence uint64) error
	// Younger reports whether no message is known to be as old as that.
	Younger(age time.Duration) bool
}

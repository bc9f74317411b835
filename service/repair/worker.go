// Package repair puts right, changes or ends what lies behind the orders. In async it loads the hot copies (Rebuilder),
// finishes the work of dead processes (Reconciler), compares both sides (Auditor), changes hot copies for
// administrators (Stock), replays dead letters (Replayer) and changes the order mode (ModeChange). In both modes it
// expires unpaid orders, draws, and publishes events. Read election.go first, then reconcile.go and rebuild.go.
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

// OthersConsume reports whether this instance may leave the queue to the elected reconciler, so that orders share
// transactions. A mistake delays an order by at most budget.Look, or 6 s (ackWait in package queue).
func (w *Worker) OthersConsume() bool {
	return !w.Reconciler.elected.Load() && w.Reconciler.deps.Backlog.Younger(budget.Look)
}

// New puts a worker together. Nothing runs yet. The reconciler is not elected while selling answers an error.
func New(parts Deps, by Elector, selling func() error) *Worker {
	rebuilder := newRebuilder(parts)
	persisting := persist.Deps{
		Database: parts.Database, Epochs: parts.Epochs, Hot: parts.Hot, Queue: parts.Queue, Rebuild: rebuilder.Ask,
		Metrics: parts.Metrics, Log: parts.Log,
	}
	settler := persist.NewSettler(persisting)
	auditor := &Auditor{deps: parts, settler: settler, rebuilds: rebuilder}
	relay := &outbox{deps: parts, settler: settler, rebuilds: rebuilder}
	w := &Worker{
		Rebuilder: rebuilder, Settler: settler, Auditor: auditor, Persister: persist.New(persisting, settler),
		Stock:    &Stock{deps: parts, rebuilder: rebuilder, auditor: auditor},
		Replayer: &Replayer{deps: parts}, Relay: relay.of,
		Reconciler: &Reconciler{
			deps: parts, settler: settler, rebuilds: rebuilder, outbox: relay,
			stranded: &stranded{deps: parts, settler: settler, rebuilds: rebuilder}, drift: newDriftWatch(auditor),
		},
	}
	w.Reconciler.election = election{
		Elector: by, job: "reconciler", may: selling, term: w.Reconciler.term, limit: budget.Step,
	}
	return w
}

// Deps are what all parts of a worker work with.
type Deps struct {
	Database Database
	Epochs   Epochs
	Hot      HotCopies
	Queue    Queue
	Backlog  Backlog
	Mode     func(ctx context.Context) (model.ModeRecord, error) // of the database
	Metrics  *telemetry.Worker
	AdminLog AdminLog // needed where administrators ask for something
	Log      *slog.Logger
}

// AdminLog keeps what administrators change, of what no transaction of the database does.
type AdminLog interface {
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

// Database is the truth about vouchers and orders. Its implementations say more: repository.Orders, Vouchers, Releases.
type Database interface {
	persist.Database

	GetMany(ctx context.Context, ids []string) (map[string]model.Voucher, error)
	Audit(ctx context.Context, voucherID string) (model.Audit, error)
	Find(ctx context.Context, ids []string) (map[string]model.Order, error)
	Failed(ctx context.Context, ids []string) (map[string]model.Order, error)
	Live(ctx context.Context, voucherID string, yield func(model.Order) error) error
	After(ctx context.Context, last model.Release, limit int) ([]model.Release, error)
	Done(ctx context.Context, ids []int64) error
	ChangeStock(ctx context.Context, id string, change model.StockChange, once model.Idempotency) (model.Voucher, error)
	IntendStock(ctx context.Context, id string, change model.StockChange,
		once model.Idempotency) (intent model.StockIntent, needed bool, err error)
	Intents(ctx context.Context, olderThan time.Duration) ([]model.StockIntent, error)
	DropIntent(ctx context.Context, intent model.StockIntent) error
}

// Epochs is what the database says about hot copies: repository.Epochs.
type Epochs interface {
	persist.Epochs

	Watched(ctx context.Context) ([]model.EpochRecord, error)
	Kept(ctx context.Context) ([]model.EpochRecord, error)
	Close(ctx context.Context, voucherID string, from int64, adminID string) (model.EpochRecord, error)
	SetBarrier(ctx context.Context, voucherID string, epoch int64, barrier uint64) error
	Progress(ctx context.Context, voucherID string, epoch int64) error
	Snapshot(ctx context.Context, voucherID string, epoch int64, work func(model.Snapshot) error) error
	Open(ctx context.Context, voucherID string, epoch int64) error
}

// HotCopies are the hot copies: hotcopy.Store.
type HotCopies interface {
	persist.HotCopies

	Incarnation(ctx context.Context) (string, error)
	Quiet(ctx context.Context, records []model.EpochRecord) []bool
	Pending(ctx context.Context, orderID string) (model.Reservation, bool, error)
	Marks(ctx context.Context, voucherID string, epoch int64, yield func(userID, orderID string) error) error
	Pendings(ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error) error
	Due(ctx context.Context, voucherID string, olderThan time.Duration, limit int) ([]model.Reservation, error)
	Touch(ctx context.Context, reservations []model.Reservation) error
	Mend(ctx context.Context, voucherID string, orderIDs []string) error

	Reserve(ctx context.Context, asked []model.ReserveRequest) ([]model.ReserveResult, error)
	Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error)
	ReleaseAll(ctx context.Context, voucherID string, releases []model.Release) (applied bool, err error)
	Apply(ctx context.Context, v model.Voucher) (applied bool, err error)
	Lower(ctx context.Context, voucherID string, stock, revision int64) error

	Close(ctx context.Context, record model.EpochRecord) error
	Load(ctx context.Context, record model.EpochRecord, live []model.Order, carried []model.Reservation) error
	LoadCooling(ctx context.Context, record model.EpochRecord, cooling []model.Cooling) error
	Open(ctx context.Context, record model.EpochRecord, v model.Voucher, missing int64) error
	Abandon(ctx context.Context, record model.EpochRecord)
}

// Queue carries reservations to the workers, and keeps the dead letters: queue.Queue.
type Queue interface {
	persist.Queue

	Publish(ctx context.Context, reservations []model.Reservation) error
	Backlog(ctx context.Context) (model.Backlog, error)
	BacklogOf(ctx context.Context, voucherID string) (model.Backlog, error)
	PendingOf(ctx context.Context, voucherID string) (model.Backlog, error)
	Buried(ctx context.Context) (map[string]bool, error)
	DeadLetter(ctx context.Context, sequence uint64) (model.DeadLetter, error)
	RemoveDeadLetter(ctx context.Context, sequence uint64) error
}

// Backlog waits for the consumer of the queue: backlog.Watch.
type Backlog interface {
	Await(ctx context.Context, voucherID string, sequence uint64) error
	Younger(age time.Duration) bool
}

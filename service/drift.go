package service

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// driftEvery is between two comparisons of a voucher's id sets: they read
	// every order, and everything that usually goes wrong is found sooner by
	// other means.
	driftEvery = 30 * time.Second
	// driftPause is between two looks for vouchers whose turn it is, and what
	// must have passed before a difference that was seen is taken for real.
	driftPause = 5 * time.Second
	// driftBudget is how long one look goes on to the next voucher, and driftShare
	// how many times what it took is rested behind it, up to driftRestMost: the
	// sale goes on beside it.
	driftBudget   = 150 * time.Millisecond
	driftShare    = 20
	driftRestMost = time.Minute
)

// driftRest is the pause behind a look.
func driftRest(took time.Duration) time.Duration {
	return max(driftPause, min(driftShare*took, driftRestMost))
}

// driftWatch compares the id sets of open vouchers, one after the other, also while
// they are sold.
type driftWatch struct {
	auditor  *Auditor
	settler  *Settler
	rebuilds CopyDoctor
	metrics  *telemetry.Worker
	log      *slog.Logger

	mu   sync.Mutex
	rows map[string]model.EpochRecord // of the watched vouchers
	hot  map[string]driftCopy         // as the copies were last read

	checked map[string]driftCheck // by voucher; used by one goroutine
}

// driftCopy is what tells whether a hot copy is worth a comparison.
type driftCopy struct{ version, buyers int64 }

// driftCheck is the latest comparison of one voucher.
type driftCheck struct {
	at       time.Time
	hot, row int64             // versions at the comparison
	suspects map[string]string // what was found, by order
	again    bool              // some of it for the first time
}

func newDriftWatch(auditor *Auditor, settler *Settler, rebuilds CopyDoctor, metrics *telemetry.Worker, log *slog.Logger) *driftWatch {
	return &driftWatch{
		auditor: auditor, settler: settler, rebuilds: rebuilds, metrics: metrics, log: log,
		hot: map[string]driftCopy{}, checked: map[string]driftCheck{},
	}
}

// watched tells which vouchers are to be compared.
func (d *driftWatch) watched(rows map[string]model.EpochRecord) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows = rows
	maps.DeleteFunc(d.hot, func(id string, _ driftCopy) bool { return rows[id].VoucherID == "" })
}

// read tells of copies as they are now.
func (d *driftWatch) read(copies map[string]model.HotCopy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, hot := range copies {
		d.hot[id] = driftCopy{hot.Voucher.Version, hot.Buyers}
	}
}

// look compares the vouchers whose turn it is.
func (d *driftWatch) look(ctx context.Context) error {
	began := time.Now()
	var failed []error // of one voucher, which holds up no other
	for _, id := range d.due() {
		failed = append(failed, d.check(ctx, id, d.checked[id]))
		if time.Since(began) > driftBudget {
			break // the others come first next time
		}
	}
	return errors.Join(failed...)
}

// due lists the vouchers whose turn it is: those where something was seen for the
// first time, and then those that have moved since they were compared, the longest
// ago first.
func (d *driftWatch) due() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var due []string
	for id, row := range d.rows {
		hot, known := d.hot[id]
		before, compared := d.checked[id]
		age := time.Since(before.at)
		moved := row.Version > before.row || hot.version > before.hot
		switch {
		case !row.Open():
		case !compared: // not all at once after an election, and not right after a rebuild
			d.checked[id] = driftCheck{at: time.Now()}
		case known && row.Taken == 0 && hot.buyers == 0 && len(before.suspects) == 0: // there is nothing to compare
		case before.again && age >= driftPause, (moved || len(before.suspects) > 0) && age >= driftEvery:
			due = append(due, id)
		}
	}
	maps.DeleteFunc(d.checked, func(id string, _ driftCheck) bool { row := d.rows[id]; return !row.Open() })
	slices.SortFunc(due, func(a, b string) int {
		x, y := d.checked[a], d.checked[b]
		if x.again != y.again {
			return map[bool]int{true: -1, false: 1}[x.again]
		}
		return x.at.Compare(y.at)
	})
	return due
}

// check compares one voucher and puts right what is certain.
func (d *driftWatch) check(ctx context.Context, id string, before driftCheck) error {
	before.at = time.Now()
	d.checked[id] = before // one that cannot be compared does not keep the others from it
	now, certain, err := d.compare(ctx, id, before)
	if errors.Is(err, model.ErrCopyClosed) {
		return nil // there is nothing to compare
	}
	if err != nil {
		return err
	}
	d.metrics.Drift(id, len(certain))
	if err := d.repair(ctx, id, certain); err != nil {
		return err
	}
	d.checked[id] = now
	return nil
}

// compare compares one voucher. Certain is what was the same at the comparison
// before: in a running sale one alone may meet an order between two of its steps.
func (d *driftWatch) compare(ctx context.Context, id string, before driftCheck) (now driftCheck, certain []drifted, err error) {
	backlog, err := d.auditor.deps.Queue.BacklogOf(ctx, id) // before the rows: see comparison
	if err != nil {
		return now, nil, err
	}
	hot, v, err := d.auditor.read(ctx, id)
	if err != nil {
		return now, nil, err
	}
	if hot.State != model.CopyOpen {
		return now, nil, model.ErrCopyClosed
	}
	found, _, err := d.auditor.compare(ctx, hot, v, backlog)
	if err != nil {
		return now, nil, err
	}
	now = driftCheck{at: time.Now(), hot: hot.Voucher.Version, row: v.Version, suspects: map[string]string{}}
	for _, drift := range found {
		now.suspects[drift.orderID] = drift.found
		if before.suspects[drift.orderID] == drift.found {
			certain = append(certain, drift)
		} else {
			now.again = true
		}
	}
	return now, certain, nil
}

// repair puts right by order id what can be; for the rest the voucher is rebuilt.
func (d *driftWatch) repair(ctx context.Context, id string, certain []drifted) error {
	var decided []finishedOrder
	rebuild := false
	for _, drift := range certain {
		d.log.ErrorContext(ctx, "an order does not add up", slog.String("voucher_id", id),
			slog.String("order_id", drift.orderID), slog.String("found", drift.found))
		switch drift.remedy {
		case remedySettle:
			decided = append(decided, drift.order)
		case remedyRebuild:
			rebuild = true
		case remedyRepublish: // the reconciler's other half waits for the ack floor
		}
	}
	if len(decided) > 0 {
		if err := d.settler.settle(ctx, decided); err != nil {
			return err
		}
		d.metrics.Reconciled("settled", len(decided))
	}
	if rebuild {
		d.metrics.Reconciled("rebuild", 1)
		d.rebuilds.Demand(id)
	}
	return nil
}

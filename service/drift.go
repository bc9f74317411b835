package service

import (
	"context"
	"errors"
	"log/slog"
	"maps"
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
)

// driftWatch compares the id sets of open vouchers, one after the other.
type driftWatch struct {
	auditor  *Auditor
	settler  *Settler
	rebuilds CopyDoctor
	metrics  *telemetry.Worker
	log      *slog.Logger

	mu       sync.Mutex
	vouchers []string // whose copies the database holds for open

	checked map[string]driftCheck // by voucher; used by one goroutine
}

// driftCheck is the latest comparison of one voucher.
type driftCheck struct {
	at       time.Time
	hot, row int64           // versions at the comparison
	suspects map[string]bool // orders that a rebuild would put right
}

func newDriftWatch(auditor *Auditor, settler *Settler, rebuilds CopyDoctor, metrics *telemetry.Worker, log *slog.Logger) *driftWatch {
	return &driftWatch{
		auditor: auditor, settler: settler, rebuilds: rebuilds, metrics: metrics, log: log,
		checked: map[string]driftCheck{},
	}
}

// watched tells which vouchers are to be compared.
func (d *driftWatch) watched(records []model.CopyRecord) {
	var open []string
	for _, record := range records {
		if record.Open() {
			open = append(open, record.VoucherID)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vouchers = open
}

// look compares the vouchers whose turn it is.
func (d *driftWatch) look(ctx context.Context) error {
	d.mu.Lock()
	vouchers := d.vouchers
	d.mu.Unlock()
	open := make(map[string]bool, len(vouchers))
	var failed []error // of one voucher, which holds up no other
	for _, id := range vouchers {
		open[id] = true
		before, known := d.checked[id]
		if !known {
			// Not all at once after an election, and not right after a rebuild.
			d.checked[id] = driftCheck{at: time.Now()}
			continue
		}
		age := time.Since(before.at)
		if age < driftEvery && (len(before.suspects) == 0 || age < driftPause) {
			continue
		}
		failed = append(failed, d.check(ctx, id, before))
	}
	maps.DeleteFunc(d.checked, func(id string, _ driftCheck) bool { return !open[id] })
	return errors.Join(failed...)
}

// check compares one voucher, unless nothing has moved since it was last right.
func (d *driftWatch) check(ctx context.Context, id string, before driftCheck) error {
	hot, v, err := d.auditor.read(ctx, id)
	if err != nil {
		return err
	}
	now := driftCheck{at: time.Now(), hot: hot.Voucher.Version, row: v.Version}
	settled := len(before.suspects) == 0 && before.hot == now.hot && before.row == now.row
	if hot.State != model.CopyOpen || hot.Reserved > 0 || settled {
		if !settled {
			now.hot = 0 // not compared: look again next time
		}
		d.checked[id] = now
		return nil
	}
	backlog, err := d.auditor.deps.Queue.BacklogOf(ctx, id)
	if err != nil {
		return err
	}
	found, _, err := d.auditor.compare(ctx, hot, v, backlog)
	if errors.Is(err, model.ErrCopyClosed) {
		return nil // meanwhile: there is nothing to compare
	}
	if err != nil {
		return err
	}
	d.metrics.Drift(id, len(found))
	now.suspects = map[string]bool{}
	for _, drift := range found {
		now.suspects[drift.orderID] = true
	}
	if err := d.repair(ctx, id, found, before); err != nil {
		return err
	}
	d.checked[id] = now
	return nil
}

// repair puts right by order id what can be; for the rest the voucher is
// rebuilt, if it was there at the comparison before: a sale must not be closed
// on the strength of one look.
func (d *driftWatch) repair(ctx context.Context, id string, found []drifted, before driftCheck) error {
	var decided []finishedOrder
	rebuild := false
	for _, drift := range found {
		twice := before.suspects[drift.orderID]
		d.log.ErrorContext(ctx, "an order does not add up", slog.String("voucher_id", id),
			slog.String("order_id", drift.orderID), slog.String("found", drift.found), slog.Bool("seen_before", twice))
		switch drift.remedy {
		case remedySettle:
			decided = append(decided, drift.order)
		case remedyRebuild:
			rebuild = rebuild || twice
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

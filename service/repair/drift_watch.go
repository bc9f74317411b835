package repair

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"seckill/model"
)

const (
	// driftEvery is between two comparisons of a voucher's id sets: each reads every
	// order. What a comparison finds is repaired within 30 s also if it arose behind one.
	driftEvery = 15 * time.Second
	// driftPause is between two looks for vouchers whose turn it is. A difference is
	// certain when it is still there after this time.
	driftPause = 5 * time.Second
	// driftBudget is how long one look goes on to the next voucher. After the look
	// there is a rest of driftShare times its length, up to driftRestMost, because the
	// sale goes on beside it.
	driftBudget   = 150 * time.Millisecond
	driftShare    = 20
	driftRestMost = time.Minute
)

// driftWatch compares the orders of open vouchers, one voucher after the other, also
// while they are sold.
type driftWatch struct {
	auditor *Auditor

	mu     sync.Mutex
	epochs map[string]model.EpochRecord // of the watched vouchers
	hot    map[string]driftCopy         // the hot copies as they were last read
	off    map[string]int64             // by how many units they differed from a row that did not change

	checked map[string]driftCheck // by voucher; used by one goroutine
}

// driftCopy tells whether a hot copy is worth a comparison.
type driftCopy struct {
	version, buyers, taken int64
}

// takenOf is how many units of a hot copy should have a row: all that are neither left nor reserved.
func takenOf(hot model.HotCopy) int64 {
	return hot.Voucher.Stock - hot.Voucher.Remaining - hot.Reserved
}

// driftCheck is the latest comparison of one voucher.
type driftCheck struct {
	at       time.Time
	hot, row int64             // versions at the comparison
	off      int64             // by how many units more were taken in the hot copy
	suspects map[string]string // what was found, by order
	again    bool              // some of it was found for the first time
}

func newDriftWatch(auditor *Auditor) *driftWatch {
	return &driftWatch{auditor: auditor, hot: map[string]driftCopy{}, checked: map[string]driftCheck{}}
}

// watched notes which vouchers are to be compared.
func (d *driftWatch) watched(epochs map[string]model.EpochRecord) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = map[string]int64{}
	for id, hot := range d.hot {
		if now := epochs[id]; now.Version == d.epochs[id].Version && hot.taken != now.Taken {
			d.off[id] = hot.taken - now.Taken
		}
	}
	d.epochs = epochs
	maps.DeleteFunc(d.hot, func(id string, _ driftCopy) bool { return epochs[id].VoucherID == "" })
}

// seen notes the hot copies as they are now.
func (d *driftWatch) seen(hot map[string]model.HotCopy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, now := range hot {
		d.hot[id] = driftCopy{now.Voucher.Version, now.Buyers, takenOf(now)}
	}
}

// look compares the vouchers whose turn it is.
func (d *driftWatch) look(ctx context.Context) error {
	began := time.Now()
	var failed []error // one voucher's error holds up no other voucher
	for _, id := range d.due() {
		failed = append(failed, d.check(ctx, id, d.checked[id]))
		if time.Since(began) > driftBudget {
			break // the others come first next time
		}
	}
	return errors.Join(failed...)
}

// due lists the vouchers whose turn it is: first those where something was found for
// the first time, then those that are early, have changed since they were compared or have
// suspects, the one compared the longest ago first.
func (d *driftWatch) due() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var due []string
	for id, epoch := range d.epochs {
		hot, known := d.hot[id]
		before, compared := d.checked[id]
		age := time.Since(before.at)
		// A database that was restored from a backup has a row of an earlier version. What was read of a hot copy is older
		// than the comparison where that was not read since.
		moved := epoch.Version != before.row || hot.version > before.hot
		// Or the two sides count other units, and nothing is on its way between them.
		early := epoch.Version < before.row || d.off[id] != 0 && d.off[id] != before.off
		switch {
		case !epoch.Open():
		case !compared: // wait first: not all at once after an election, and not right after a rebuild
			d.checked[id] = driftCheck{at: time.Now()}
		case known && epoch.Taken == 0 && hot.buyers == 0 && len(before.suspects) == 0: // there is nothing to compare
		case (before.again || early) && age >= driftPause, (moved || len(before.suspects) > 0) && age >= driftEvery:
			due = append(due, id)
		}
	}
	maps.DeleteFunc(d.checked, func(id string, _ driftCheck) bool { return !d.epochs[id].Open() })
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
	d.checked[id] = before // a voucher that cannot be compared does not hold up the others
	now, certain, err := d.compareTwice(ctx, id, before)
	if errors.Is(err, model.ErrCopyClosed) {
		return nil // there is nothing to compare
	}
	if err != nil {
		return err
	}
	d.auditor.deps.Metrics.Drift.Set(id, int64(len(certain)))
	if err := d.repair(ctx, id, certain); err != nil {
		return err
	}
	d.checked[id] = now
	return nil
}

// compareTwice compares one voucher. A difference is certain when the comparison before
// found the same: in a running sale, a single comparison may meet an order between
// two of its steps.
func (d *driftWatch) compareTwice(ctx context.Context, id string, before driftCheck) (now driftCheck, certain []drifted, err error) {
	c, err := d.auditor.compare(ctx, id)
	if err != nil {
		return now, nil, err
	}
	if c.hot.State != model.CopyOpen {
		return now, nil, model.ErrCopyClosed
	}
	now = driftCheck{
		at: time.Now(), hot: c.hot.Voucher.Version, row: c.voucher.Version,
		off: takenOf(c.hot) - (c.voucher.Stock - c.voucher.Remaining), suspects: map[string]string{},
	}
	if c.leftOut {
		now.off = 0 // it is not known yet whether that accounts for it
	}
	for _, drift := range c.found {
		now.suspects[drift.orderID] = drift.found
		if before.suspects[drift.orderID] == drift.found {
			certain = append(certain, drift)
		} else {
			now.again = true
		}
	}
	return now, certain, nil
}

// repair settles by order id what can be settled, and asks for a rebuild where that
// is not enough. Lost reservations are published again by the reconciler, once the
// queue's consumer has passed everything published before.
func (d *driftWatch) repair(ctx context.Context, id string, certain []drifted) error {
	for _, drift := range certain {
		d.auditor.deps.Log.ErrorContext(ctx, "an order does not add up", slog.String("voucher_id", id),
			slog.String("order_id", drift.orderID), slog.String("found", drift.found))
	}
	settled, _, rebuild, err := d.auditor.settleDrift(ctx, certain)
	if err != nil {
		return err
	}
	if settled > 0 {
		d.auditor.deps.Metrics.Reconciled.WithLabelValues("settled").Add(float64(settled))
	}
	if rebuild {
		d.auditor.deps.Metrics.Reconciled.WithLabelValues("rebuild").Inc()
		d.auditor.rebuilds.Ask(id, model.AnyEpoch)
	}
	return nil
}

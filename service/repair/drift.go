package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"seckill/internal/budget"
	"seckill/model"
	"seckill/service/persist"
)

const (
	// driftAge is how old a difference must be to count, by the contract: a younger one is an order on its way.
	driftAge       = budget.Answer
	maxSuspects    = 5000 // are looked at one by one. A voucher with more has to be rebuilt anyway
	maxDriftListed = 1000 // orders in one answer
)

type remedy int

const (
	remedySettle    remedy = iota // it has a row: settle or release the reservation
	remedyRepublish               // it has neither row nor message: publish it again
	remedyRebuild                 // the marks are wrong: rebuild the hot copy
)

type drifted struct {
	orderID string
	found   string
	remedy  remedy
	order   persist.Decided
}

type suspect struct{ orderID, userID string }

// comparison compares a voucher's orders in hot copy and database: a hash of 8 bytes each, then ids of the rest.
type comparison struct {
	auditor *Auditor

	backlog  model.Backlog // before anything else was read
	passed   bool          // everything that was queued then is consumed
	hot      model.HotCopy
	voucher  model.Voucher
	seed     maphash.Seed
	marks    map[uint64]struct{} // buyers' marks whose row was not seen
	pending  map[uint64]struct{} // reservations
	suspects map[suspect]struct{}

	found   []drifted // orders that do not add up
	leftOut bool      // some difference was too young to count
}

// compare finds the orders that do not add up in an open hot copy, and looks at each twice, as the sides are not read
// at once. The queue is read first: once that is consumed, no message has an old reservation without a row.
func (a *Auditor) compare(ctx context.Context, voucherID string) (*comparison, error) {
	c := &comparison{
		auditor: a, seed: maphash.MakeSeed(),
		marks: map[uint64]struct{}{}, pending: map[uint64]struct{}{}, suspects: map[suspect]struct{}{},
	}
	var err error
	if c.backlog, err = a.deps.Queue.PendingOf(ctx, voucherID); err != nil {
		return nil, unreachable("The queue could not be asked.", err)
	}
	if c.hot, c.voucher, err = a.read(ctx, voucherID); err != nil || c.hot.State != model.CopyOpen {
		return c, err
	}
	for _, step := range []func(context.Context) error{c.readReserved, c.readMarks, c.readRows, c.nameMarks} {
		if err := step(ctx); err != nil && !errors.Is(err, errEnough) {
			return nil, err
		}
	}
	if err := c.pass(ctx); err != nil {
		return nil, err
	}
	for s := range c.suspects {
		d, drifts, err := c.judge(ctx, s)
		if err != nil {
			return nil, err
		}
		if drifts {
			c.found = append(c.found, d)
		}
	}
	slices.SortFunc(c.found, func(a, b drifted) int { return cmp.Compare(a.orderID, b.orderID) })
	return c, nil
}

// pass looks whether everything is consumed by now that was queued before anything else was read.
func (c *comparison) pass(ctx context.Context) error {
	now, err := c.backlog, error(nil)
	if !c.quiet() && len(c.pending) > 0 {
		now, err = c.auditor.deps.Queue.BacklogOf(ctx, c.voucher.ID)
	}
	c.passed = now.AckFloor >= c.backlog.LastSequence
	return unreachable("The queue could not be asked.", err)
}

func (c *comparison) quiet() bool { return c.backlog.Messages == 0 }

func (c *comparison) hash(userID, orderID string) uint64 {
	return maphash.String(c.seed, userID+" "+orderID)
}

func (c *comparison) suspect(userID, orderID string) error {
	c.suspects[suspect{orderID, userID}] = struct{}{}
	if len(c.suspects) >= maxSuspects {
		return errEnough
	}
	return nil
}

// readReserved notes the reservations. Every old one is suspect: it should have a row by now, and be settled.
func (c *comparison) readReserved(ctx context.Context) error {
	err := c.auditor.deps.Hot.Pendings(ctx, c.voucher.ID, c.hot.Epoch, func(r model.Reservation) error {
		c.pending[c.hash(r.UserID, r.ID)] = struct{}{}
		if c.young(r) {
			c.leftOut = true
			return nil
		}
		if !c.quiet() && len(c.suspects) >= maxSuspects/2 {
			return nil // a long queue is no drift; other differences need the room
		}
		return c.suspect(r.UserID, r.ID)
	})
	return unreachable("The reservations could not be read.", err)
}

func (c *comparison) readMarks(ctx context.Context) error {
	err := c.auditor.deps.Hot.Marks(ctx, c.voucher.ID, c.hot.Epoch, func(userID, orderID string) error {
		c.marks[c.hash(userID, orderID)] = struct{}{}
		return nil
	})
	return unreachable("The buyers could not be read.", err)
}

// readRows strikes out the marks that have a live row. A live row without a mark is suspect.
func (c *comparison) readRows(ctx context.Context) error {
	err := c.auditor.deps.Database.Live(ctx, c.voucher.ID, func(order model.Order) error {
		key := c.hash(order.UserID, order.ID)
		if _, marked := c.marks[key]; marked {
			delete(c.marks, key)
			return nil
		}
		return c.suspect(order.UserID, order.ID)
	})
	if err != nil {
		return fmt.Errorf("read the orders of voucher %s: %w", c.voucher.ID, err)
	}
	return nil
}

// nameMarks reads the marks again. Those without a live row and without a reservation are suspect.
func (c *comparison) nameMarks(ctx context.Context) error {
	for key := range c.pending {
		delete(c.marks, key)
	}
	if len(c.marks) == 0 {
		return nil
	}
	err := c.auditor.deps.Hot.Marks(ctx, c.voucher.ID, c.hot.Epoch, func(userID, orderID string) error {
		if _, left := c.marks[c.hash(userID, orderID)]; left {
			return c.suspect(userID, orderID)
		}
		return nil
	})
	return unreachable("The buyers could not be read.", err)
}

// judge looks again, in Redis first: a mark comes before the row and goes after its end. Later differences are young.
func (c *comparison) judge(ctx context.Context, s suspect) (drifted, bool, error) {
	marked, _, err := c.auditor.deps.Hot.OrderOf(ctx, c.voucher.ID, s.userID)
	if err != nil {
		return drifted{}, false, unreachable("The hot copy was closed meanwhile.", err)
	}
	reserved, pending, err := c.auditor.deps.Hot.Pending(ctx, s.orderID)
	if err != nil {
		return drifted{}, false, unreachable("The hot copy was closed meanwhile.", err)
	}
	rows, err := c.auditor.deps.Database.Find(ctx, []string{s.orderID})
	if err != nil {
		return drifted{}, false, fmt.Errorf("look for order %s: %w", s.orderID, err)
	}
	row, exists := rows[s.orderID]
	if pending = pending && reserved.UserID == s.userID; !pending {
		reserved = model.Reservation{
			Order: model.Order{ID: s.orderID, VoucherID: c.voucher.ID, UserID: s.userID},
			Epoch: c.hot.Epoch,
		}
	}
	d := drifted{orderID: s.orderID, order: persist.Decided{Reservation: reserved, Row: row}}
	if pending && c.young(reserved) {
		c.leftOut = true
		return d, false, nil
	}
	if exists {
		d.found, d.remedy = c.rowDrift(row, marked == s.orderID, pending)
	} else {
		d.found, d.remedy = c.lostDrift(marked == s.orderID, pending)
	}
	return d, d.found != "", nil
}

func (c *comparison) rowDrift(row model.Order, marked, pending bool) (string, remedy) {
	recent := c.voucher.ServerTime.Add(-driftAge)
	switch {
	case row.Live() && pending:
		return "persisted, but still reserved in Redis", remedySettle
	case row.Live() == marked && !pending:
		return "", 0
	case row.Live() && row.CreatedAt.Before(recent):
		return "a live order that Redis does not know of", remedyRebuild
	case row.Live() || (row.ClosedAt != nil && !row.ClosedAt.Before(recent)):
		c.leftOut = true // its mark is on its way, or the release of a closed order
		return "", 0
	case c.voucher.Waitlist: // it may be another user's: see Release
		return fmt.Sprintf("%s, but its unit is still taken in Redis", row.Status), remedyRebuild
	default:
		return fmt.Sprintf("%s, but its unit is still taken in Redis", row.Status), remedySettle
	}
}

func (c *comparison) lostDrift(marked, pending bool) (string, remedy) {
	switch {
	case pending && c.passed:
		return "reserved in Redis, but neither in the database nor in the queue", remedyRepublish
	case pending || !marked:
		return "", 0
	default:
		return "a buyer's mark without an order", remedyRebuild
	}
}

// settleDrift settles drifted orders with a row. It returns how many, those to publish, and if to rebuild.
func (a *Auditor) settleDrift(
	ctx context.Context, found []drifted,
) (settled int, lost []model.Reservation, rebuild bool, err error) {
	var done []persist.Decided
	for _, d := range found {
		switch d.remedy {
		case remedySettle:
			done = append(done, d.order)
		case remedyRepublish:
			lost = append(lost, d.order.Reservation)
		case remedyRebuild:
			rebuild = true
		}
	}
	if len(done) > 0 {
		err = a.settler.Tell(ctx, done)
	}
	return len(done), lost, rebuild, err
}

// young reports whether a reservation was made a moment ago, on Redis' clock.
func (c *comparison) young(r model.Reservation) bool {
	return r.CreatedAt.After(c.hot.Voucher.ServerTime.Add(-driftAge))
}

const (
	// driftEvery is between two comparisons of a voucher's ids, which read every order and repair within 30 s.
	driftEvery = 3 * budget.Answer
	// driftBudget is how long a look goes on to the next voucher. It rests driftShare times that, to budget.Survey.
	driftBudget = 3 * budget.Blink
	driftShare  = 20
)

// driftWatch compares the orders of open vouchers, one voucher after the other, also while they are sold.
type driftWatch struct {
	auditor *Auditor

	mu     sync.Mutex
	epochs map[string]model.EpochRecord // of the watched vouchers
	hot    map[string]driftCopy         // the hot copies as they were last read
	off    map[string]int64             // by how many units they differed from a row that did not change

	checked map[string]driftCheck // by voucher; used by one goroutine
}

type driftCopy struct {
	version, buyers, taken int64
}

// takenOf is how many units of a hot copy should have a row: all that are neither left nor reserved.
func takenOf(hot model.HotCopy) int64 {
	return hot.Voucher.Stock - hot.Voucher.Remaining - hot.Reserved
}

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

func (d *driftWatch) seen(hot map[string]model.HotCopy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, now := range hot {
		d.hot[id] = driftCopy{now.Voucher.Version, now.Buyers, takenOf(now)}
	}
}

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

// due lists the vouchers in turn: new findings first, then early, changed or suspect ones, the longest unseen first.
func (d *driftWatch) due() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var due []string
	for id, epoch := range d.epochs {
		hot, known := d.hot[id]
		before, compared := d.checked[id]
		age := time.Since(before.at)
		// A restored database has an older row. What was read of a hot copy is older where it was not read since.
		moved := epoch.Version != before.row || hot.version > before.hot
		// Or the two sides count other units, and nothing is on its way between them.
		early := epoch.Version < before.row || d.off[id] != 0 && d.off[id] != before.off
		switch {
		case !epoch.Open():
		case !compared: // wait first: not all at once after an election, and not right after a rebuild
			d.checked[id] = driftCheck{at: time.Now()}
		case known && epoch.Taken == 0 && hot.buyers == 0 && len(before.suspects) == 0: // there is nothing to compare
		case (before.again || early) && age >= budget.Answer, (moved || len(before.suspects) > 0) && age >= driftEvery:
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

// compareTwice trusts only a difference that the comparison before found too: an order may be between two of its steps.
func (d *driftWatch) compareTwice(
	ctx context.Context, id string, before driftCheck,
) (now driftCheck, certain []drifted, err error) {
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

// repair settles by order id, or asks for a rebuild. The reconciler publishes lost reservations once the queue is past.
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

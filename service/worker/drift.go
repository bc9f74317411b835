package worker

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

	"seckill/model"
)

const (
	// driftAge is how old a difference must be to count, by the contract: a younger
	// one is an order on its way.
	driftAge = 5 * time.Second
	// maxSuspects bounds the differences that are looked at one by one. A voucher with
	// more of them has to be rebuilt anyway.
	maxSuspects = 5000
	// maxDriftListed bounds the orders that one answer names.
	maxDriftListed = 1000
	// driftEvery is between two comparisons of a voucher's id sets: each reads every
	// order, and what usually goes wrong is found sooner in other ways.
	driftEvery = 30 * time.Second
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

// remedy is what puts a drifted order right.
type remedy int

const (
	remedySettle    remedy = iota // it has a row: settle or release the reservation
	remedyRepublish               // it has neither row nor message: publish it again
	remedyRebuild                 // the marks are wrong: rebuild the hot copy
)

// drifted is an order that does not add up.
type drifted struct {
	orderID string
	found   string
	remedy  remedy
	order   decided
}

// suspect is an order that one side has and the other did not show.
type suspect struct{ orderID, userID string }

// comparison compares the orders of one voucher in the hot copy and in the database.
// It keeps 8 bytes an order, a hash, and reads the ids of those left over again.
type comparison struct {
	*Auditor

	backlog  model.Backlog // before anything else was read
	hot      model.HotCopy
	voucher  model.Voucher
	seed     maphash.Seed
	marks    map[uint64]struct{} // buyers' marks whose row was not seen
	pending  map[uint64]struct{} // reservations
	suspects map[suspect]struct{}

	found   []drifted // orders that do not add up
	leftOut bool      // some difference was too young to count
}

// compare finds the orders that do not add up. Each order that differs at first sight
// is looked at again by itself, because the two sides are not read at one instant.
// A hot copy that is not open is read and not compared.
//
// The queue is read first: when it had no message of the voucher, an old reservation
// that has no row afterwards is in no message.
func (a *Auditor) compare(ctx context.Context, voucherID string) (*comparison, error) {
	c := &comparison{
		Auditor: a, seed: maphash.MakeSeed(),
		marks: map[uint64]struct{}{}, pending: map[uint64]struct{}{}, suspects: map[suspect]struct{}{},
	}
	var err error
	if c.backlog, err = a.Queue.BacklogOf(ctx, voucherID); err != nil {
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

// quiet reports whether the queue had no message of the voucher.
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

// readReserved notes the reservations. Every old one is suspect: it should have a
// row by now, and be settled.
func (c *comparison) readReserved(ctx context.Context) error {
	err := c.Hot.Pendings(ctx, c.voucher.ID, c.hot.Epoch, c.hot.Shards, func(r model.Reservation) error {
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
	err := c.Hot.Marks(ctx, c.voucher.ID, c.hot.Epoch, c.hot.Shards, func(userID, orderID string) error {
		c.marks[c.hash(userID, orderID)] = struct{}{}
		return nil
	})
	return unreachable("The buyers could not be read.", err)
}

// readRows strikes out the marks that have a live row. A live row without a mark is
// suspect.
func (c *comparison) readRows(ctx context.Context) error {
	err := c.Database.Live(ctx, c.voucher.ID, func(order model.Order) error {
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

// nameMarks reads the marks again. Those without a live row and without a
// reservation are suspect.
func (c *comparison) nameMarks(ctx context.Context) error {
	for key := range c.pending {
		delete(c.marks, key)
	}
	if len(c.marks) == 0 {
		return nil
	}
	err := c.Hot.Marks(ctx, c.voucher.ID, c.hot.Epoch, c.hot.Shards, func(userID, orderID string) error {
		if _, left := c.marks[c.hash(userID, orderID)]; left {
			return c.suspect(userID, orderID)
		}
		return nil
	})
	return unreachable("The buyers could not be read.", err)
}

// judge looks at one order again, in Redis first and then in the database: an order
// is marked before it has a row, and loses its mark after its row is closed. A
// difference that arises between the two readings is young.
func (c *comparison) judge(ctx context.Context, s suspect) (drifted, bool, error) {
	marked, _, err := c.Hot.OrderOf(ctx, c.voucher.ID, s.userID)
	if err != nil {
		return drifted{}, false, unreachable("The hot copy was closed meanwhile.", err)
	}
	reserved, pending, err := c.Hot.Pending(ctx, s.orderID, s.userID)
	if err != nil {
		return drifted{}, false, unreachable("The hot copy was closed meanwhile.", err)
	}
	rows, err := c.Database.Find(ctx, []string{s.orderID})
	if err != nil {
		return drifted{}, false, fmt.Errorf("look for order %s: %w", s.orderID, err)
	}
	row, exists := rows[s.orderID]
	if !pending {
		reserved = model.Reservation{Order: model.Order{ID: s.orderID, VoucherID: c.voucher.ID, UserID: s.userID}, Epoch: c.hot.Epoch}
	}
	d := drifted{orderID: s.orderID, order: decided{reservation: reserved, row: row}}
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

// rowDrift says what is wrong with an order that has a row; "" when nothing is.
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
	default:
		return fmt.Sprintf("%s, but its unit is still taken in Redis", row.Status), remedySettle
	}
}

// lostDrift says what is wrong with an order that has no row.
func (c *comparison) lostDrift(marked, pending bool) (string, remedy) {
	switch {
	case pending && c.quiet():
		return "reserved in Redis, but neither in the database nor in the queue", remedyRepublish
	case pending || !marked:
		return "", 0
	default:
		return "a buyer's mark without an order", remedyRebuild
	}
}

// settleDrift settles the orders that drifted and have a row. It returns how many
// those are, the reservations to be published again, and whether a rebuild is needed.
func (a *Auditor) settleDrift(
	ctx context.Context, found []drifted,
) (settled int, lost []model.Reservation, rebuild bool, err error) {
	var done []decided
	for _, d := range found {
		switch d.remedy {
		case remedySettle:
			done = append(done, d.order)
		case remedyRepublish:
			lost = append(lost, d.order.reservation)
		case remedyRebuild:
			rebuild = true
		}
	}
	if len(done) > 0 {
		err = a.settler.settle(ctx, done)
	}
	return len(done), lost, rebuild, err
}

// young reports whether a reservation was made a moment ago, on Redis' clock.
func (c *comparison) young(r model.Reservation) bool {
	return r.CreatedAt.After(c.hot.Voucher.ServerTime.Add(-driftAge))
}

// driftWatch compares the orders of open vouchers, one voucher after the other, also
// while they are sold.
type driftWatch struct {
	*Auditor

	mu     sync.Mutex
	epochs map[string]model.EpochRecord // of the watched vouchers
	hot    map[string]driftCopy         // the hot copies as they were last read

	checked map[string]driftCheck // by voucher; used by one goroutine
}

// driftCopy tells whether a hot copy is worth a comparison.
type driftCopy struct{ version, buyers int64 }

// driftCheck is the latest comparison of one voucher.
type driftCheck struct {
	at       time.Time
	hot, row int64             // versions at the comparison
	suspects map[string]string // what was found, by order
	again    bool              // some of it was found for the first time
}

func newDriftWatch(auditor *Auditor) *driftWatch {
	return &driftWatch{Auditor: auditor, hot: map[string]driftCopy{}, checked: map[string]driftCheck{}}
}

// watched notes which vouchers are to be compared.
func (d *driftWatch) watched(epochs map[string]model.EpochRecord) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.epochs = epochs
	maps.DeleteFunc(d.hot, func(id string, _ driftCopy) bool { return epochs[id].VoucherID == "" })
}

// read notes the hot copies as they are now.
func (d *driftWatch) read(hot map[string]model.HotCopy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, now := range hot {
		d.hot[id] = driftCopy{now.Voucher.Version, now.Buyers}
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
// the first time, then those that have changed since they were compared or have
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
		switch {
		case !epoch.Open():
		case !compared: // wait first: not all at once after an election, and not right after a rebuild
			d.checked[id] = driftCheck{at: time.Now()}
		case known && epoch.Taken == 0 && hot.buyers == 0 && len(before.suspects) == 0: // there is nothing to compare
		case before.again && age >= driftPause, (moved || len(before.suspects) > 0) && age >= driftEvery:
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
	now, certain, err := d.compare(ctx, id, before)
	if errors.Is(err, model.ErrCopyClosed) {
		return nil // there is nothing to compare
	}
	if err != nil {
		return err
	}
	d.Metrics.Drift(id, len(certain))
	if err := d.repair(ctx, id, certain); err != nil {
		return err
	}
	d.checked[id] = now
	return nil
}

// compare compares one voucher. A difference is certain when the comparison before
// found the same: in a running sale, a single comparison may meet an order between
// two of its steps.
func (d *driftWatch) compare(ctx context.Context, id string, before driftCheck) (now driftCheck, certain []drifted, err error) {
	c, err := d.Auditor.compare(ctx, id)
	if err != nil {
		return now, nil, err
	}
	if c.hot.State != model.CopyOpen {
		return now, nil, model.ErrCopyClosed
	}
	now = driftCheck{at: time.Now(), hot: c.hot.Voucher.Version, row: c.voucher.Version, suspects: map[string]string{}}
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
		d.Log.ErrorContext(ctx, "an order does not add up", slog.String("voucher_id", id),
			slog.String("order_id", drift.orderID), slog.String("found", drift.found))
	}
	settled, _, rebuild, err := d.settleDrift(ctx, certain)
	if err != nil {
		return err
	}
	if settled > 0 {
		d.Metrics.Reconciled("settled", settled)
	}
	if rebuild {
		d.Metrics.Reconciled("rebuild", 1)
		d.rebuilds.Demand(id)
	}
	return nil
}

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
	// driftAge is how old a difference must be to count: what is younger is on
	// its way. The contract says so.
	driftAge = 5 * time.Second
	// maxSuspects bounds the differences that are looked at one by one; with
	// more of them the voucher is to be rebuilt anyway.
	maxSuspects = 5000
	// maxDriftListed bounds what one answer names.
	maxDriftListed = 1000
)

// remedy is what puts a drifted order right.
type remedy int

const (
	remedySettle    remedy = iota // its row is there: settle or undo the reservation
	remedyRepublish               // neither row nor message
	remedyRebuild                 // the marks are wrong
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

// comparison holds one voucher's id sets against each other. It keeps 8 bytes an
// order: a hash. Those left over are named by a second reading.
type comparison struct {
	*Auditor

	hot      model.HotCopy
	voucher  model.Voucher
	quiet    bool // the queue was empty before anything was read
	seed     maphash.Seed
	marks    map[uint64]struct{} // buyers' marks whose row was not seen
	pending  map[uint64]struct{} // reservations
	suspects map[suspect]struct{}
	leftOut  bool // something was too young to tell
}

// compare finds the orders that do not add up, and tells whether there were any
// too young to count. What differs at first sight is looked at again one by one,
// because the sides are not read at one instant.
func (a *Auditor) compare(
	ctx context.Context, hot model.HotCopy, v model.Voucher, backlog model.Backlog,
) (found []drifted, leftOut bool, err error) {
	c := &comparison{
		Auditor: a, hot: hot, voucher: v, quiet: backlog.Messages == 0, seed: maphash.MakeSeed(),
		marks: map[uint64]struct{}{}, pending: map[uint64]struct{}{}, suspects: map[suspect]struct{}{},
	}
	for _, step := range []func(context.Context) error{c.readReserved, c.readMarks, c.readRows, c.nameMarks} {
		if err := step(ctx); err != nil && !errors.Is(err, errEnough) {
			return nil, false, err
		}
	}
	for s := range c.suspects {
		d, drifts, err := c.judge(ctx, s)
		if err != nil {
			return nil, false, err
		}
		if drifts {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b drifted) int { return cmp.Compare(a.orderID, b.orderID) })
	return found, c.leftOut, nil
}

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

// readReserved notes the reservations; old ones are suspect, all of them: their
// row should be there, and then they should be settled.
func (c *comparison) readReserved(ctx context.Context) error {
	err := c.Hot.Pendings(ctx, c.voucher.ID, c.hot.Epoch, func(r model.Reservation) error {
		c.pending[c.hash(r.UserID, r.ID)] = struct{}{}
		if c.young(r) {
			c.leftOut = true
			return nil
		}
		if !c.quiet && len(c.suspects) >= maxSuspects/2 {
			return nil // a long queue is no drift, and leaves room for what is
		}
		return c.suspect(r.UserID, r.ID)
	})
	return unavailable(err, "The reservations could not be read.")
}

func (c *comparison) readMarks(ctx context.Context) error {
	err := c.Hot.Marks(ctx, c.voucher.ID, c.hot.Epoch, func(userID, orderID string) error {
		c.marks[c.hash(userID, orderID)] = struct{}{}
		return nil
	})
	return unavailable(err, "The buyers could not be read.")
}

// readRows strikes out the marks that have a live row.
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

// nameMarks reads the marks again to name those without a live row or a
// reservation.
func (c *comparison) nameMarks(ctx context.Context) error {
	for key := range c.pending {
		delete(c.marks, key)
	}
	if len(c.marks) == 0 {
		return nil
	}
	err := c.Hot.Marks(ctx, c.voucher.ID, c.hot.Epoch, func(userID, orderID string) error {
		if _, left := c.marks[c.hash(userID, orderID)]; left {
			return c.suspect(userID, orderID)
		}
		return nil
	})
	return unavailable(err, "The buyers could not be read.")
}

// judge looks at one order again: in Redis first and then in the database,
// because every order is marked before it has a row, and loses its mark after
// the row was closed. What falls between the two readings is young.
func (c *comparison) judge(ctx context.Context, s suspect) (drifted, bool, error) {
	marked, _, err := c.Hot.OrderOf(ctx, c.voucher.ID, s.userID)
	if err != nil {
		return drifted{}, false, unavailable(err, "The hot copy was closed meanwhile.")
	}
	reserved, pending, err := c.Hot.Pending(ctx, s.orderID)
	if err != nil {
		return drifted{}, false, unavailable(err, "The hot copy was closed meanwhile.")
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
		c.leftOut = true // on its way, and so is a closed order's release
		return "", 0
	default:
		return fmt.Sprintf("%s, but its unit is still taken in Redis", row.Status), remedySettle
	}
}

// lostDrift says what is wrong with an order that has no row.
func (c *comparison) lostDrift(marked, pending bool) (string, remedy) {
	switch {
	case pending && c.quiet:
		return "reserved in Redis, but neither in the database nor in the queue", remedyRepublish
	case pending || !marked:
		return "", 0
	default:
		return "a buyer's mark without an order", remedyRebuild
	}
}

// settleDrift settles the orders that drifted and have a row. It returns how many
// they are, the reservations that were lost, and whether a rebuild is needed.
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

func unavailable(err error, detail string) error {
	if err == nil || errors.Is(err, errEnough) {
		return err
	}
	return unreachable(detail, err)
}

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
	*Auditor

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

func newDriftWatch(auditor *Auditor) *driftWatch {
	return &driftWatch{Auditor: auditor, hot: map[string]driftCopy{}, checked: map[string]driftCheck{}}
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
	d.Metrics.Drift(id, len(certain))
	if err := d.repair(ctx, id, certain); err != nil {
		return err
	}
	d.checked[id] = now
	return nil
}

// compare compares one voucher. Certain is what was the same at the comparison
// before: in a running sale one alone may meet an order between two of its steps.
func (d *driftWatch) compare(ctx context.Context, id string, before driftCheck) (now driftCheck, certain []drifted, err error) {
	backlog, err := d.Queue.BacklogOf(ctx, id) // before the rows: see comparison
	if err != nil {
		return now, nil, err
	}
	hot, v, err := d.Auditor.read(ctx, id)
	if err != nil {
		return now, nil, err
	}
	if hot.State != model.CopyOpen {
		return now, nil, model.ErrCopyClosed
	}
	found, _, err := d.Auditor.compare(ctx, hot, v, backlog)
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
// What was lost the reconciler publishes, once the queue's floor has passed it.
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

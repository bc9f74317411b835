package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"seckill/model"
	"seckill/service/persist"
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
	order   persist.Decided
}

// suspect is an order that one side has and the other did not show.
type suspect struct{ orderID, userID string }

// comparison compares the orders of one voucher in the hot copy and in the database.
// It keeps 8 bytes an order, a hash, and reads the ids of those left over again.
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

// compare finds the orders that do not add up. Each order that differs at first sight
// is looked at again by itself, because the two sides are not read at one instant.
// A hot copy that is not open is read and not compared.
//
// The queue is read first: when what it had of the voucher is consumed, an old reservation
// that has no row afterwards is in no message.
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

// quiet reports whether the queue had no message that may be of the voucher.
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

// readRows strikes out the marks that have a live row. A live row without a mark is
// suspect.
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

// nameMarks reads the marks again. Those without a live row and without a
// reservation are suspect.
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

// judge looks at one order again, in Redis first and then in the database: an order
// is marked before it has a row, and loses its mark after its row is closed. A
// difference that arises between the two readings is young.
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
		reserved = model.Reservation{Order: model.Order{ID: s.orderID, VoucherID: c.voucher.ID, UserID: s.userID}, Epoch: c.hot.Epoch}
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
	case c.voucher.Waitlist: // it may be another user's: see Release
		return fmt.Sprintf("%s, but its unit is still taken in Redis", row.Status), remedyRebuild
	default:
		return fmt.Sprintf("%s, but its unit is still taken in Redis", row.Status), remedySettle
	}
}

// lostDrift says what is wrong with an order that has no row.
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

// settleDrift settles the orders that drifted and have a row. It returns how many
// those are, the reservations to be published again, and whether a rebuild is needed.
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

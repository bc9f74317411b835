package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
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
	order   finishedOrder
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
	err := c.deps.Copies.Pendings(ctx, c.voucher.ID, c.hot.Epoch, func(r model.Reservation) error {
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
	err := c.deps.Copies.Marks(ctx, c.voucher.ID, c.hot.Epoch, func(userID, orderID string) error {
		c.marks[c.hash(userID, orderID)] = struct{}{}
		return nil
	})
	return unavailable(err, "The buyers could not be read.")
}

// readRows strikes out the marks that have a live row.
func (c *comparison) readRows(ctx context.Context) error {
	err := c.deps.Orders.Live(ctx, c.voucher.ID, func(order model.Order) error {
		key := c.hash(order.UserID, order.ID)
		if _, marked := c.marks[key]; marked {
			delete(c.marks, key)
			return nil
		}
		return c.suspect(order.UserID, order.ID)
	})
	return wrapped(err, "read the orders of voucher "+c.voucher.ID)
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
	err := c.deps.Copies.Marks(ctx, c.voucher.ID, c.hot.Epoch, func(userID, orderID string) error {
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
	marked, _, err := c.deps.Copies.OrderOf(ctx, c.voucher.ID, s.userID)
	if err != nil {
		return drifted{}, false, unavailable(err, "The hot copy was closed meanwhile.")
	}
	reserved, pending, err := c.deps.Copies.Pending(ctx, s.orderID)
	if err != nil {
		return drifted{}, false, unavailable(err, "The hot copy was closed meanwhile.")
	}
	rows, err := c.deps.Orders.Find(ctx, []string{s.orderID})
	if err != nil {
		return drifted{}, false, fmt.Errorf("look for order %s: %w", s.orderID, err)
	}
	row, exists := rows[s.orderID]
	if !pending {
		reserved = model.Reservation{Order: model.Order{ID: s.orderID, VoucherID: c.voucher.ID, UserID: s.userID}, Epoch: c.hot.Epoch}
	}
	d := drifted{orderID: s.orderID, order: finishedOrder{reservation: reserved, row: row}}
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

// young reports whether a reservation was made a moment ago, on Redis' clock.
func (c *comparison) young(r model.Reservation) bool {
	return r.CreatedAt.After(c.hot.Voucher.ServerTime.Add(-driftAge))
}

func unavailable(err error, detail string) error {
	if err == nil || errors.Is(err, errEnough) {
		return err
	}
	return away(detail, err)
}

package repository

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/ids"
	"seckill/model"
	"seckill/repository/sqldb"
)

const (
	// countedPlaces are counted at most to tell a position, which users poll: a fraction of a millisecond.
	countedPlaces = 1000
	// servedAtOnce places become orders in one transaction, which keeps the voucher's row for half a second then.
	servedAtOnce = 10_000
)

type waitlistRow struct {
	VoucherID     string
	Place         int64
	UserID        string
	JoinedAt      time.Time
	PaymentWindow time.Duration
	OrderID       *string // nil: the place waits
}

// TableName implements gorm's Tabler.
func (waitlistRow) TableName() string { return "waitlist" }

const insertPlace insertion = "INSERT INTO waitlist (voucher_id, place, user_id, joined_at, payment_window) VALUES "

// Join gives users places at the end of a voucher's waitlist, in their order, or finds those they have. CONFLICT: units
// are free (model.ErrUnitsFree), or no waitlist. ALREADY_ORDERED: a live order. COOLING_DOWN, and what a purchase gets
// while the sale is not open. The error is for all.
func (o *Orders) Join(ctx context.Context, voucherID string, asked []model.Joining) ([]model.Joined, error) {
	j := joins{terms: o.terms, dialect: o.db.Dialect, voucherID: voucherID, asked: asked, sent: map[string]time.Time{}}
	action := fmt.Sprintf("join the waitlist of voucher %s, %d users", voucherID, len(asked))
	err := o.db.WriteRepeatable(ctx, action, func(tx *gorm.DB, doubtful bool) error {
		v, err := readVoucher(tx, o.db.Dialect, voucherID)
		if err == nil && v.Remaining == 0 { // otherwise nobody gets a place, and buyers need the row
			var places map[string]waitlistRow
			// Who has a place is told so without the row's lock.
			if places, err = placesOf(tx, voucherID, j.users()); err == nil && len(places) < len(asked) {
				v, err = lockVoucher(tx, o.db.Dialect, voucherID)
			}
		}
		if err != nil {
			return err
		}
		return j.attempt(tx, doubtful, v, stored(v.Now.Time))
	})
	return j.answers, err
}

type joins struct {
	terms     terms
	dialect   sqldb.Dialect
	voucherID string
	asked     []model.Joining
	answers   []model.Joined
	// sent has, by user, when a place was made whose COMMIT may not have been answered.
	sent map[string]time.Time
}

func (j *joins) users() (users []string) {
	for _, asked := range j.asked {
		if model.ValidUserID(asked.UserID) { // see possible
			users = append(users, asked.UserID)
		}
	}
	return users
}

func (j *joins) attempt(tx *gorm.DB, doubtful bool, v voucherRow, now time.Time) error {
	if !doubtful {
		clear(j.sent)
	}
	users := j.users()
	places, err := placesOf(tx, j.voucherID, users)
	if err != nil {
		return err
	}
	live, err := liveOrders(tx, j.voucherID, users)
	if err != nil {
		return err
	}
	if v.Cooldown > 0 {
		if v.cooling, err = coolingOf(tx, j.dialect, j.voucherID, users); err != nil {
			return err
		}
	}
	j.answers = make([]model.Joined, len(j.asked))
	var fresh []string
	for i, asked := range j.asked {
		answer := &j.answers[i]
		row, found := places[asked.UserID]
		if !found {
			if answer.Err = refuseJoin(v, asked, live, now); answer.Err != nil {
				continue
			}
			row = waitlistRow{
				VoucherID: j.voucherID, Place: v.Places + int64(len(fresh)) + 1, UserID: asked.UserID, JoinedAt: now,
			}
			places[asked.UserID], j.sent[asked.UserID] = row, now
			fresh = append(fresh, asked.UserID)
			answer.Created = true
		} else {
			answer.Created = row.Place <= v.Places && row.JoinedAt.Equal(j.sent[asked.UserID])
		}
		position, err := positionOf(tx, v, row)
		if err != nil {
			return err
		}
		answer.Place = row.shown(position)
	}
	if len(fresh) == 0 {
		return sqldb.ErrNothingToWrite
	}
	return appendPlaces(tx, &v, now, j.terms.windowOf(v), fresh)
}

func placesOf(tx *gorm.DB, voucherID string, users []string) (map[string]waitlistRow, error) {
	return keyed("look for places", users, func(row waitlistRow) string { return row.UserID },
		func(some []string) *gorm.DB {
			return tx.Where("voucher_id = ? AND user_id IN ? AND waits = 1", voucherID, some)
		})
}

// refuseJoin tells why a user gets no place now. While a unit remains nobody waits, nor does who has an order.
func refuseJoin(v voucherRow, asked model.Joining, live map[string]model.Order, now time.Time) error {
	voucher := v.Voucher
	if asked.Early {
		voucher = voucher.ForEarly()
	}
	if !model.ValidUserID(asked.UserID) {
		return model.Invalid("user_id", "is not a user's id")
	}
	if refusal := voucher.Refusal(now); refusal != nil {
		return refusal
	}
	if !v.Waitlist || v.Allocation == model.ByDraw { // whose places are drawn
		return model.NoWaitlist()
	}
	if order, ok := live[asked.UserID]; ok {
		return model.AlreadyOrdered(order)
	}
	if wait := v.cooling[asked.UserID]; wait.Until.After(now) { // a place may become an order at once
		return model.CoolingDown(wait.Until.Time, now)
	}
	if v.Remaining > 0 {
		return model.UnitsFree()
	}
	return nil
}

// appendPlaces puts users without a place or live order behind all others. The voucher is locked and sold out.
func appendPlaces(tx *gorm.DB, v *voucherRow, at time.Time, window time.Duration, users []string) error {
	args := insertPlace.room(len(users))
	for i, user := range users {
		args = append(args, v.ID, v.Places+int64(i)+1, user, at, int64(window))
	}
	if err := insertPlace.rows(tx, args); err != nil {
		return err
	}
	v.Waiting, v.Places = v.Waiting+int64(len(users)), v.Places+int64(len(users))
	return noteWaiting(tx, *v)
}

func noteWaiting(tx *gorm.DB, v voucherRow) error {
	return matched(tx.Exec("UPDATE vouchers SET waiting = ?, places = ?, places_served = ?, remaining = ?, version = version + 1 WHERE id = ?",
		v.Waiting, v.Places, v.PlacesServed, v.Remaining, v.ID), 1)
}

// Leave gives places up in one transaction, and says of each user: NOT_FOUND without a place, ALREADY_ORDERED while its
// order is live. It locks the voucher only for who has a place. The error is for all.
func (o *Orders) Leave(ctx context.Context, voucherID string, users []string) ([]error, error) {
	if err := possible(voucherID); err != nil {
		return nil, err
	}
	var answers []error
	sent := map[string]bool{} // whose place is gone with a COMMIT that may not have been answered
	action := fmt.Sprintf("leave the waitlist of voucher %s, %d users", voucherID, len(users))
	err := o.db.WriteRepeatable(ctx, action, func(tx *gorm.DB, doubtful bool) error {
		if !doubtful {
			clear(sent)
		}
		places, err := placesOf(tx, voucherID, users)
		if err != nil {
			return err
		}
		var v voucherRow
		if len(places) > 0 {
			if v, err = lockVoucher(tx, o.db.Dialect, voucherID); err != nil {
				return err
			}
			if places, err = placesOf(tx, voucherID, users); err != nil { // some may have been served meanwhile
				return err
			}
		}
		live, err := liveOrders(tx, voucherID, users)
		if err != nil {
			return err
		}
		answers = make([]error, len(users))
		left := map[string]bool{} // somebody may ask twice
		for i, user := range users {
			_, waits := places[user]
			order, ordered := live[user]
			switch {
			case (waits || sent[user]) && !left[user]:
				left[user] = true
			case ordered:
				answers[i] = model.AlreadyOrdered(order)
			default:
				answers[i] = model.NotFound("place")
			}
		}
		if len(places) == 0 {
			return sqldb.ErrNothingToWrite
		}
		leaving := slices.Collect(maps.Keys(places))
		gone := tx.Exec("DELETE FROM waitlist WHERE voucher_id = ? AND user_id IN ? AND waits = 1", voucherID, leaving)
		if err := matched(gone, len(leaving)); err != nil {
			return fmt.Errorf("delete %d places: %w", len(leaving), err)
		}
		for _, user := range leaving {
			sent[user] = true
		}
		v.Waiting = max(v.Waiting-int64(len(leaving)), 0)
		return noteWaiting(tx, v)
	})
	return answers, err
}

// Place is a user's place on a waitlist, or the last one, which became an order; NOT_FOUND without any.
func (o *Orders) Place(ctx context.Context, voucherID, userID string) (place model.WaitlistPlace, err error) {
	if err := possible(voucherID); err != nil {
		return place, err
	}
	err = o.db.Read(ctx, "look at a place for voucher "+voucherID, func(db *gorm.DB) error {
		row, err := first[waitlistRow](db.Where("voucher_id = ? AND user_id = ?", voucherID,
			userID).Order("place DESC"), "the place")
		if err != nil {
			return err
		}
		if row == nil {
			return model.NotFound("place")
		}
		position := int64(0)
		if row.OrderID == nil {
			v, err := readVoucher(db, o.db.Dialect, voucherID)
			if err != nil {
				return err
			}
			if position, err = positionOf(db, v, *row); err != nil {
				return err
			}
		}
		place = row.shown(position)
		return nil
	})
	return place, err
}

func (r waitlistRow) shown(position int64) model.WaitlistPlace {
	place := model.WaitlistPlace{VoucherID: r.VoucherID, Position: position, JoinedAt: r.JoinedAt}
	if r.OrderID != nil {
		place.Position, place.OrderID = 0, *r.OrderID
	}
	return place
}

// positionOf tells how many wait before a place, with it. Far behind it counts those who left, up to all waiting.
func positionOf(db *gorm.DB, v voucherRow, row waitlistRow) (position int64, err error) {
	if row.Place > v.Places { // it is not written yet, and nobody has left who is behind it
		return v.Waiting + row.Place - v.Places, nil
	}
	const before = "SELECT COUNT(*) FROM (SELECT 1 FROM waitlist WHERE voucher_id = ? AND place > ? AND place <= ? LIMIT ?) AS before_it"
	if err := db.Raw(before, row.VoucherID, v.PlacesServed, row.Place,
		countedPlaces+1).Scan(&position).Error; err != nil {
		return 0, fmt.Errorf("count who waits before: %w", err)
	}
	if position > countedPlaces {
		position = min(row.Place-v.PlacesServed, v.Waiting)
	}
	return max(position, 1), nil // it may have been served meanwhile
}

// Waitlists counts who waits, and units back for a minute that nobody got: of overdue orders, of releases with an heir.
func (o *Orders) Waitlists(ctx context.Context) (waiting, held int64, err error) {
	err = o.db.Browse(ctx, "look at the waitlists", func(db *gorm.DB) error {
		now, err := readClock(db, o.db.Dialect)
		if err != nil {
			return err
		}
		return db.Raw(sqlOf(o.db.Dialect, "waitlist_held"), now.Add(-budget.Survey)).Row().Scan(&waiting, &held)
	})
	return waiting, held, err
}

// handOver makes returned or added units orders of who waits first, in the same transaction; others are on sale.
// Changes in returned brought units back. With added ones the hot copy ends: it would promise heirs a second order.
func handOver(
	tx *gorm.DB, db *sqldb.Database, mode model.OrderMode, voucherID string, units int, returned []*statusChange,
) error {
	v, err := lockVoucher(tx, db.Dialect, voucherID)
	if err != nil {
		return err // there is no such voucher
	}
	var line []waitlistRow
	most := min(units, servedAtOnce)
	err = tx.Where("voucher_id = ? AND place > ?", voucherID,
		v.PlacesServed).Order("place").Limit(most).Find(&line).Error
	if err != nil {
		return fmt.Errorf("read who waits: %w", err)
	}
	// MariaDB's clock of the reading is of before the wait for the row: an earlier place would have a later order.
	if len(line) > 0 {
		if v.Now.Time, err = readClock(tx, db.Dialect); err != nil {
			return err
		}
	}
	heirs := make([]model.Order, len(line))
	for i, row := range line {
		if heirs[i], err = unasked(db, &v, row.UserID, row.PaymentWindow); err != nil {
			return err
		}
	}
	v.Waiting = max(v.Waiting-int64(len(line)), 0)
	if v.Waiting == 0 || len(line) < most { // they were all
		v.Waiting = 0
		v.Remaining += int64(units - len(line))
	}
	if len(line) > 0 {
		if err := serve(tx, db, &v, line[len(line)-1].Place, heirs); err != nil {
			return err
		}
	}
	if err := noteWaiting(tx, v); err != nil {
		return fmt.Errorf("hand %d units over: %w", units, err)
	}
	for i := range min(len(returned), len(heirs)) {
		returned[i].heir = heirs[i]
	}
	if returned == nil && len(heirs) > 0 && copied(mode, v) {
		if err := tx.Exec(sqlOf(db.Dialect, "copy_void"), v.ID).Error; err != nil {
			return fmt.Errorf("close the hot copy: %w", err)
		}
	}
	failpoint.Reach(failpoint.AfterHandOver)
	return nil
}

// unasked is a new order of a user who has not called: the unit falls to one who waits, or was drawn.
func unasked(db *sqldb.Database, v *voucherRow, userID string, window time.Duration) (model.Order, error) {
	id, err := ids.New()
	order := model.Order{ID: model.OrderID(id, v.ID), VoucherID: v.ID, UserID: userID}
	order = newRow(model.Reservation{Order: order}, v, window)
	return order, cmp.Or(err, payFree(db, &order))
}

func serve(tx *gorm.DB, db *sqldb.Database, v *voucherRow, upTo int64, heirs []model.Order) error {
	if err := insertOrders(tx, heirs); err != nil {
		return err
	}
	served := tx.Exec("UPDATE waitlist SET order_id = (SELECT id FROM orders WHERE orders.voucher_id = waitlist.voucher_id"+
		" AND orders.user_id = waitlist.user_id AND orders.slot = 1) WHERE voucher_id = ? AND place > ? AND place <= ?",
		v.ID, v.PlacesServed, upTo)
	if err := matched(served, len(heirs)); err != nil {
		return fmt.Errorf("serve who waits: %w", err)
	}
	v.PlacesServed = upTo
	return announceOrders(db, tx, heirs, born(heirs))
}

// mostHeirs are so many that a call tells the hot copy of them. Where more wait to be told, the outbox does it.
const mostHeirs = 100

// releasesHeirs is the index that has the releases of a voucher by heir.
const releasesHeirs = "releases_heirs"

// tellHeirs notes under the voucher's lock, in the order of transactions, which orders got the units that came back. A
// hot copy that does not know an earlier heir would give it a free unit too. So the call that releases one gives the
// earlier heirs first, up to one more than mostHeirs.
func tellHeirs(tx *gorm.DB, dialect sqldb.Dialect, voucherID string, returned []*statusChange) error {
	rows := make([]model.Release, len(returned))
	for i, c := range returned {
		rows[i] = model.Release{
			OrderID: c.order.ID, VoucherID: voucherID, UserID: c.order.UserID, CooldownUntil: c.until,
			HeirID: c.heir.ID, HeirUserID: c.heir.UserID, WrittenOff: c.move.WritesOff(),
		}
	}
	if err := insertReleases(tx, rows); err != nil {
		return err
	}
	var heirs []model.Release
	earlier := tx.Table(dialect.Through("releases", releasesHeirs)).Where("voucher_id = ? AND heir_id IS NOT NULL",
		voucherID)
	// The query reads a few in any order; with that many nobody is told.
	if err := earlier.Limit(mostHeirs + 1).Find(&heirs).Error; err != nil {
		return fmt.Errorf("look for earlier heirs: %w", err)
	}
	slices.SortFunc(heirs, func(a, b model.Release) int { return cmp.Compare(a.ID, b.ID) })
	for _, c := range returned {
		if c.heir.ID == "" {
			c.before = heirs
		}
	}
	return nil
}

package repository

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"seckill/internal/draw"
	"seckill/internal/failpoint"
	"seckill/model"
	"seckill/repository/sqldb"
)

// Draws keeps who entered a draw, and the drawn order.
type Draws struct {
	db     *sqldb.Database
	window time.Duration // for payment, unless the voucher says another
}

// NewDraws keeps the draws of a database. Winners have so long to pay, unless their voucher says another time.
func NewDraws(db *sqldb.Database, window time.Duration) *Draws { return &Draws{db, window} }

// drawRow is a row of draws. Its Beacon is the voucher's, where that was read too.
type drawRow struct {
	model.DrawState `gorm:"embedded"`

	ClosedAt *time.Time
	Winners  int64
	DrawnAt  *time.Time
	BeaconAt *time.Time // when the value was entered
}

// TableName implements gorm's Tabler.
func (drawRow) TableName() string { return "draws" }

func newDraw(tx *gorm.DB, voucherID string) error {
	row := drawRow{DrawState: model.DrawState{VoucherID: voucherID, Secret: draw.Random(draw.SecretSize)}}
	if err := tx.Create(&row).Error; err != nil {
		return fmt.Errorf("make the draw of voucher %s: %w", voucherID, err)
	}
	return nil
}

// lockDraw locks a draw's row to the transaction's end, after the voucher's if both are locked; nil: it never was one.
func lockDraw(tx *gorm.DB, voucherID string) (*drawRow, error) {
	return first[drawRow](locked(tx).Where("voucher_id = ?", voucherID), "the draw of voucher "+voucherID)
}

// changeDraw makes a voucher's draw, or refuses what a closed one forbids. Both rows stay locked: no entry slips in.
func changeDraw(tx *gorm.DB, before, after *model.Voucher) error {
	if before.Allocation != model.ByDraw && after.Allocation != model.ByDraw {
		return nil
	}
	row, err := lockDraw(tx, after.ID)
	if err != nil {
		return err
	}
	if row == nil {
		return newDraw(tx, after.ID)
	}
	same := before.BeginAt.Equal(after.BeginAt) && before.EndAt.Equal(after.EndAt) &&
		after.SameRules(&before.VoucherFields)
	if row.ClosedAt != nil && !same {
		return model.Conflict("The draw is closed: its window and its rules stay as they are.")
	}
	return nil
}

type dueRow struct {
	Draw drawRow `gorm:"embedded"`

	DueAt clock
	Now   clock `gorm:"column:read_at"`
}

func (r drawRow) state() model.DrawState {
	r.Closed = r.ClosedAt != nil
	return r.DrawState
}

// Due lists the draws that are to be done, those that are due longest first. One that waits for a value is not due.
func (d *Draws) Due(ctx context.Context) ([]model.DrawState, error) {
	rows, err := list[dueRow](ctx, d.db.Read, "look for draws",
		func(db *gorm.DB) *gorm.DB { return db.Raw(sqlOf(d.db.Dialect, "draw_due")) })
	draws := make([]model.DrawState, len(rows))
	for i, row := range rows {
		draws[i] = row.Draw.state()
		draws[i].Overdue = row.Now.Sub(row.DueAt.Time)
	}
	return draws, err
}

// Close ends the entering, and returns the draw as it is then. An entry has found the draw open with its row locked: it
// is committed before this, or refused. ErrSuperseded: the sale is not over, or is paused or archived.
func (d *Draws) Close(ctx context.Context, voucherID string) (state model.DrawState, err error) {
	err = d.db.WriteRepeatable(ctx, "close the draw of voucher "+voucherID, func(tx *gorm.DB, _ bool) error {
		voucher, err := lockVoucher(tx, d.db.Dialect, voucherID)
		if err != nil {
			return err
		}
		row, err := lockDraw(tx, voucherID)
		if err != nil {
			return err
		}
		if row != nil {
			row.Beacon = voucher.Beacon
		}
		if row != nil && row.ClosedAt != nil {
			state = row.state()
			return sqldb.ErrNothingToWrite
		}
		now, err := readClock(tx, d.db.Dialect) // under the locks
		if err != nil {
			return err
		}
		if row == nil || voucher.Allocation != model.ByDraw || voucher.State != model.VoucherPublished ||
			now.Before(voucher.EndAt) {
			return model.ErrSuperseded
		}
		state = row.state()
		state.Closed = true
		return matched(tx.Exec("UPDATE draws SET closed_at = ? WHERE voucher_id = ? AND closed_at IS NULL", now,
			voucherID), 1)
	})
	return state, err
}

// entriesAtOnce are read at once: some hundred kilobytes, and two hundred questions for a million entries.
const entriesAtOnce = 5000

// Entries calls yield with every entry of a closed draw, in the order of users, some thousand at once.
func (d *Draws) Entries(ctx context.Context, voucherID string, yield func(userID string, nonce []byte) error) error {
	type row struct {
		UserID string
		Nonce  []byte
	}
	return pages(entriesAtOnce, func(last row) (page []row, err error) {
		err = d.db.Read(ctx, "read the entries of voucher "+voucherID, func(db *gorm.DB) (err error) {
			rows, err := db.Raw("SELECT user_id, nonce FROM draw_entries WHERE voucher_id = ? AND user_id > ? ORDER BY user_id LIMIT ?",
				voucherID, last.UserID, entriesAtOnce).Rows()
			page, err = scanned(rows, err, entriesAtOnce, func(r *row) []any { return []any{&r.UserID, &r.Nonce} })
			return err
		})
		return page, err
	}, each(func(one row) error { return yield(one.UserID, one.Nonce) }))
}

// SetRoot publishes the root of the closed list. ErrSuperseded says that another one is published.
func (d *Draws) SetRoot(ctx context.Context, voucherID string, root []byte) error {
	return d.db.WriteRepeatable(ctx, "publish the root of voucher "+voucherID, func(tx *gorm.DB, _ bool) error {
		done := tx.Exec("UPDATE draws SET root = ? WHERE voucher_id = ? AND closed_at IS NOT NULL AND (root IS NULL OR root = ?)", root, voucherID, root)
		if done.Error == nil && done.RowsAffected != 1 {
			return model.ErrSuperseded
		}
		return done.Error
	})
}

// SetValue keeps, for an administrator who is logged, the value of a draw's beacon, for which it waits. The same again
// changes nothing. NOT_FOUND: no draw. CONFLICT: it has no beacon, or another value, or the list of entries can still
// grow: its root must be public before the value is. VALIDATION: no value.
func (d *Draws) SetValue(ctx context.Context, voucherID, value, adminID string) (model.Draw, error) {
	value = strings.TrimSpace(value)
	if err := cmp.Or(possible(voucherID), model.CheckValue(value)); err != nil {
		return model.Draw{}, err
	}
	err := d.db.WriteRepeatable(ctx, "keep the beacon of voucher "+voucherID, func(tx *gorm.DB, _ bool) error {
		voucher, err := readVoucher(tx, d.db.Dialect, voucherID)
		if err != nil {
			return err
		}
		row, err := lockDraw(tx, voucherID)
		switch {
		case err != nil:
			return err
		case row == nil || voucher.Allocation != model.ByDraw:
			return model.NotFound("draw")
		case voucher.Beacon == "":
			return model.Conflict("This draw names no beacon.")
		case row.Root == nil:
			return model.Conflict("The list of entries is not closed yet.")
		case row.Value == value:
			return sqldb.ErrNothingToWrite
		case row.Value != "":
			return model.Conflict("Another value was entered before, and stays.")
		}
		now, err := readClock(tx, d.db.Dialect)
		if err != nil {
			return err
		}
		done := tx.Exec("UPDATE draws SET beacon_value = ?, beacon_at = ? WHERE voucher_id = ? AND beacon_value = ''",
			value, now, voucherID)
		if err := matched(done, 1); err != nil {
			return err
		}
		return logChange(d.db, tx, adminChange{
			at: now, actor: adminID, action: model.ActionBeacon, subject: voucherID,
			after: map[string]string{"beacon": voucher.Beacon, "value": value},
		})
	})
	if err != nil {
		return model.Draw{}, err
	}
	return d.Proof(ctx, voucherID, true)
}

// Serve gives the next of the drawn order what they get: an order each as long as units remain, or a place on
// the waitlist. It is one transaction, and happens only while exactly so many are served as from says. It returns how
// many are served then, also if another call was first. The last call, with none where nobody entered, ends the draw.
func (d *Draws) Serve(ctx context.Context, voucherID string, from int64, next []model.Drawn) (served int64, err error) {
	action := fmt.Sprintf("serve %d of the draw of voucher %s from %d on", len(next), voucherID, from)
	err = d.db.WriteRepeatable(ctx, action, func(tx *gorm.DB, _ bool) error {
		_, voucher, err := lockSale(tx, d.db.Dialect, voucherID)
		if err != nil {
			return err
		}
		row, err := lockDraw(tx, voucherID)
		if err != nil || row == nil {
			return cmp.Or(err, sqldb.ErrNothingToWrite)
		}
		if voucher.Now.Time, err = readClock(tx, d.db.Dialect); err != nil { // see handOver
			return err
		}
		if served = row.Position; served != from || row.DrawnAt != nil {
			return sqldb.ErrNothingToWrite
		}
		winners, err := d.allot(tx, *row, &voucher, next)
		if err != nil {
			return err
		}
		if winners > 0 {
			row.Winners = from + winners
		}
		places := insertDrawn.room(len(next)) // the drawn order
		for i := range next {
			places = append(places, voucherID, from+int64(i)+1, next[i].UserID, next[i].Leaf[:])
		}
		if err := insertDrawn.rows(tx, places); err != nil {
			return err
		}
		served = from + int64(len(next))
		var drawn *time.Time
		if served >= row.Entries {
			drawn = new(stored(voucher.Now.Time))
		}
		done := tx.Exec("UPDATE draws SET position = ?, winners = ?, drawn_at = ? WHERE voucher_id = ? AND position = ?",
			served, row.Winners, drawn, voucherID, from)
		failpoint.Reach(failpoint.BeforeDrawCommit)
		return matched(done, 1)
	})
	return served, err
}

// allot makes orders for those who get a unit; the others wait. It returns the position of the last unit.
func (d *Draws) allot(tx *gorm.DB, row drawRow, voucher *voucherRow, next []model.Drawn) (winners int64, err error) {
	owners, err := d.owners(tx, row, next)
	if err != nil {
		return 0, err
	}
	window := terms{window: d.window}.windowOf(*voucher)
	var orders []model.Order
	var waiting []string
	for place, one := range next {
		if _, owner := owners[one.UserID]; owner {
			continue
		}
		if int64(len(orders)) >= voucher.Remaining {
			waiting = append(waiting, one.UserID)
			continue
		}
		winners = int64(place) + 1
		order, err := unasked(d.db, voucher, one.UserID, window)
		if err != nil {
			return 0, err
		}
		orders = append(orders, order)
	}
	if len(orders) > 0 {
		done := tx.Exec("UPDATE vouchers SET remaining = remaining - ?, version = version + 1 WHERE id = ? AND remaining >= ?", len(orders), voucher.ID, len(orders))
		if err := matched(done, 1); err != nil {
			return 0, fmt.Errorf("take %d units: %w", len(orders), err)
		}
		voucher.Remaining -= int64(len(orders))
		if err := insert(tx, d.db, orders); err != nil {
			return 0, err
		}
	}
	if len(waiting) > 0 {
		err = appendPlaces(tx, voucher, stored(voucher.Now.Time), window, waiting)
	}
	return winners, err
}

// owners are live orders of who bought just as the voucher became a draw. They keep these, and get no second one.
func (d *Draws) owners(tx *gorm.DB, row drawRow, next []model.Drawn) (map[string]model.Order, error) {
	earlier, err := exists(tx, "SELECT 1 FROM orders WHERE voucher_id = ? AND created_at < ?", row.VoucherID,
		row.ClosedAt)
	if err != nil || !earlier {
		return map[string]model.Order{}, err
	}
	users := make([]string, len(next))
	for i, one := range next {
		users[i] = one.UserID
	}
	return liveOrders(tx, row.VoucherID, users)
}

func liveOrders(tx *gorm.DB, voucherID string, users []string) (map[string]model.Order, error) {
	return keyed("look for live orders", users, func(order model.Order) string { return order.UserID },
		func(some []string) *gorm.DB {
			return tx.Where("voucher_id = ? AND user_id IN ? AND slot = 1", voucherID, some)
		})
}

const insertDrawn insertion = "INSERT INTO draw_places (voucher_id, place, user_id, leaf) VALUES "

// Proof is what is published of a draw; NOT_FOUND without one and, but for administrators, for a draft.
func (d *Draws) Proof(ctx context.Context, voucherID string, admin bool) (model.Draw, error) {
	row, err := d.published(ctx, voucherID, admin)
	if err != nil {
		return model.Draw{}, err
	}
	commitment := draw.Commitment(row.Secret)
	_, algorithm := draw.Seed(nil, row.Beacon, "")
	proof := model.Draw{
		VoucherID: voucherID, Algorithm: algorithm, Commitment: hex.EncodeToString(commitment[:]),
		Beacon: row.Beacon, Value: row.Value, Entries: row.Entries, ClosedAt: row.ClosedAt, Root: hex.EncodeToString(row.Root), DrawnAt: row.DrawnAt,
	}
	if row.DrawnAt != nil {
		proof.Winners, proof.Secret = row.Winners, hex.EncodeToString(row.Secret)
	}
	return proof, nil
}

func (d *Draws) published(ctx context.Context, voucherID string, admin bool) (row drawRow, err error) {
	if err := possible(voucherID); err != nil {
		return row, err
	}
	err = d.db.Browse(ctx, "look at the draw of voucher "+voucherID, func(db *gorm.DB) error {
		var found struct {
			Draw drawRow `gorm:"embedded"`

			State model.VoucherState
		}
		// What was public stays so when the voucher is archived: whoever entered may check it any time later.
		err := db.Table("draws").Select("draws.*, vouchers.state, vouchers.beacon").Joins("JOIN vouchers ON vouchers.id = draws.voucher_id").
			Where("draws.voucher_id = ? AND allocation = ?", voucherID, string(model.ByDraw)).Take(&found).Error
		if row = found.Draw; err == nil && !admin && found.State == model.VoucherDraft {
			return model.NotFound("draw")
		}
		return notFound(err, "draw")
	})
	return row, err
}

// Report tells whether a draw was kept to; nil: the voucher has none. Each order made since it was closed must be of
// the first places, up to the last that the waitlist has served, and none may be made before that of an earlier place.
func (d *Draws) Report(ctx context.Context, voucherID string) (*model.ReportDraw, error) {
	type row struct {
		Entries, Winners, Served, Made int64
		DrawnAt                        *time.Time
	}
	rows, err := list[row](ctx, d.db.Browse, "report the draw of voucher "+voucherID, func(db *gorm.DB) *gorm.DB {
		return db.Raw(sqlOf(d.db.Dialect, "draw_report"), voucherID)
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	found := rows[0]
	ofTheFirst, overtaken, err := inTurn(ctx, d.db, "draw_turns", voucherID, found.Served, map[int64]time.Time{})
	return &model.ReportDraw{
		Entries: found.Entries, Winners: found.Winners,
		OrderKept: found.DrawnAt != nil && found.Made == ofTheFirst && overtaken == 0,
	}, err
}

// Leaves is a page of a draw's leaves in the drawn order. CONFLICT: not drawn yet. VALIDATION: no cursor of ours.
func (d *Draws) Leaves(
	ctx context.Context, voucherID string, admin bool, cursor string, limit int,
) (model.DrawnLeaves, error) {
	page := model.DrawnLeaves{Items: []string{}}
	last := int64(0)
	if cursor != "" {
		var err error
		if last, err = strconv.ParseInt(cursor, 10, 64); err != nil || last < 0 {
			return page, model.Invalid("query.cursor", "is none of ours")
		}
	}
	row, err := d.published(ctx, voucherID, admin)
	if err != nil {
		return page, err
	}
	if row.DrawnAt == nil {
		return page, model.Conflict("It is not drawn yet.")
	}
	var leaves [][]byte
	err = d.db.Browse(ctx, "list the leaves of voucher "+voucherID, func(db *gorm.DB) error {
		return db.Raw("SELECT leaf FROM draw_places WHERE voucher_id = ? AND place > ? ORDER BY place LIMIT ?",
			voucherID, last, limit).Scan(&leaves).Error
	})
	for _, leaf := range leaves {
		page.Items = append(page.Items, hex.EncodeToString(leaf))
	}
	if last += int64(len(leaves)); err == nil && len(leaves) > 0 && last < row.Position {
		page.NextCursor = strconv.FormatInt(last, 10)
	}
	return page, err
}

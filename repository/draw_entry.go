package repository

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"

	"seckill/internal/draw"
	"seckill/internal/failpoint"
	"seckill/model"
	"seckill/repository/sqldb"
)

type entryRow struct {
	VoucherID string
	UserID    string
	Nonce     []byte
	EnteredAt time.Time
}

func (r entryRow) entry() model.Entry {
	leaf := draw.Leaf(r.VoucherID, r.Nonce, r.UserID)
	return model.Entry{
		VoucherID: r.VoucherID, Status: model.EntryEntered, EnteredAt: r.EnteredAt,
		Nonce: hex.EncodeToString(r.Nonce), Leaf: hex.EncodeToString(leaf[:]),
	}
}

// Enter enters users into draws in one transaction. It says of each, in their order, what became of it: the entry (an
// earlier call's too), NOT_FOUND, ENDED, PAUSED, NOT_STARTED or ALREADY_ORDERED. The database's clock decides the
// window while the draw's row is locked: a committed entry is in the closed list.
//
// It repeats what it may, also an unanswered COMMIT, until ctx ends. *model.HeldError: the draw's row stayed locked.
func (d *Draws) Enter(ctx context.Context, asked []model.Entering) ([]model.Entered, error) {
	var answers []model.Entered
	var held error
	err := d.db.WriteRepeatable(ctx, fmt.Sprintf("enter %d users", len(asked)), func(tx *gorm.DB, _ bool) error {
		answers = make([]model.Entered, len(asked))
		members := map[string][]int{}
		for i, one := range asked {
			switch {
			case !model.ValidID(one.VoucherID):
				answers[i].Err = model.NotFound("voucher")
			case !model.ValidUserID(one.UserID):
				answers[i].Err = model.Invalid("user_id", "is not a user's id")
			default:
				members[one.VoucherID] = append(members[one.VoucherID], i)
			}
		}
		fresh := 0
		for _, id := range slices.Sorted(maps.Keys(members)) { // whose rows are locked in this order
			e := entering{draws: d, tx: tx, voucherID: id, asked: asked, answers: answers}
			err := e.enter(members[id])
			if err != nil && sqldb.LockWait(err) { // a repetition would keep the other draws waiting
				held = sqldb.Named("enter the draw of voucher "+id, heldOf(id, err))
				return sqldb.ErrNothingToWrite
			}
			if err != nil {
				return err
			}
			fresh += len(e.fresh)
		}
		if fresh == 0 {
			return sqldb.ErrNothingToWrite
		}
		failpoint.Reach(failpoint.BeforeEntryCommit)
		return nil
	})
	if err = errors.Join(err, held); err != nil {
		return nil, err
	}
	failpoint.Reach(failpoint.AfterEntry)
	return answers, nil
}

type entering struct {
	draws     *Draws
	tx        *gorm.DB
	voucherID string
	asked     []model.Entering
	answers   []model.Entered
	fresh     []entryRow
}

func (e *entering) enter(members []int) error {
	began := time.Now()
	row, err := lockDraw(e.tx, e.voucherID)
	if err != nil {
		return err
	}
	waited := time.Since(began)
	// As it is since the draw's row is locked, which every change of the window needs.
	voucher, err := readVoucher(e.tx, e.draws.db.Dialect, e.voucherID)
	if err != nil && model.CodeOf(err) != model.CodeNotFound {
		return fmt.Errorf("read voucher %s: %w", e.voucherID, err)
	}
	if err == nil && (row == nil || voucher.Allocation != model.ByDraw) {
		err = model.ErrEntry
	}
	if err != nil {
		for _, i := range members {
			e.answers[i].Err = err
		}
		return nil
	}
	users := make([]string, len(members))
	for n, i := range members {
		users[n] = e.asked[i].UserID
	}
	entries, err := keyed("look for entries", users, func(row entryRow) string { return row.UserID },
		func(some []string) *gorm.DB {
			return e.tx.Table("draw_entries").Where("voucher_id = ? AND user_id IN ?", e.voucherID, some)
		})
	if err != nil {
		return err
	}
	var owners map[string]model.Order
	if voucher.Stock != voucher.Remaining { // it was no draw at first
		if owners, err = liveOrders(e.tx, e.voucherID, users); err != nil {
			return err
		}
	}
	now := stored(voucher.Now.Time)
	for _, i := range members {
		one := e.asked[i]
		entry, there := entries[one.UserID]
		if refusal := e.refusal(*row, voucher.Voucher, owners, one, voucher.Now.Time); !there && refusal != nil {
			e.answers[i].Err = refusal
			continue
		}
		if !there {
			entry = entryRow{
				VoucherID: e.voucherID, UserID: one.UserID, Nonce: draw.Random(draw.NonceSize), EnteredAt: now,
			}
			entries[one.UserID] = entry
			e.fresh = append(e.fresh, entry)
		}
		e.answers[i] = model.Entered{Entry: entry.entry(), Waited: waited}
	}
	return e.write()
}

// refusal tells why a user who has no entry cannot enter; nil: the user may.
func (e *entering) refusal(
	row drawRow, voucher model.Voucher, owners map[string]model.Order, one model.Entering, now time.Time,
) error {
	if row.ClosedAt != nil { // by whosever clock
		return &model.Error{Code: model.CodeEnded, Detail: "The sale has ended."}
	}
	if one.Early {
		voucher = voucher.ForEarly()
	}
	if refusal := voucher.Refusal(now); refusal != nil {
		return refusal
	}
	if order, has := owners[one.UserID]; has {
		return model.AlreadyOrdered(order)
	}
	return nil
}

func (e *entering) write() error {
	if len(e.fresh) == 0 {
		return nil
	}
	args := insertEntry.room(len(e.fresh))
	for _, row := range e.fresh {
		args = append(args, row.VoucherID, row.UserID, row.Nonce, row.EnteredAt)
	}
	if err := insertEntry.rows(e.tx, args); err != nil {
		return err
	}
	done := e.tx.Exec("UPDATE draws SET entries = entries + ? WHERE voucher_id = ? AND closed_at IS NULL", len(e.fresh),
		e.voucherID)
	if err := matched(done, 1); err != nil {
		return fmt.Errorf("count %d entries of voucher %s: %w", len(e.fresh), e.voucherID, err)
	}
	return nil
}

const insertEntry insertion = "INSERT INTO draw_entries (voucher_id, user_id, nonce, entered_at) VALUES "

// Entry is a user's entry and what became of it; NOT_FOUND when there is none.
func (d *Draws) Entry(ctx context.Context, voucherID, userID string) (entry model.Entry, err error) {
	if err := possible(voucherID); err != nil {
		return entry, err
	}
	type row struct {
		Mine entryRow `gorm:"embedded"`

		DrawnAt *time.Time
		OrderID *string
		Place   *int64 // on the waitlist
	}
	err = d.db.Read(ctx, "look at an entry of voucher "+voucherID, func(db *gorm.DB) error {
		found, err := first[row](db.Raw(sqlOf(d.db.Dialect, "draw_entry"), voucherID, userID), "the entry")
		if err != nil {
			return err
		}
		if found == nil {
			return model.NotFound("entry")
		}
		found.Mine.VoucherID, found.Mine.UserID = voucherID, userID
		entry = found.Mine.entry()
		switch {
		case found.OrderID != nil:
			entry.Status, entry.OrderID = model.EntryWon, *found.OrderID
		case found.Place != nil:
			entry.Status = model.EntryWaiting
			v, err := readVoucher(db, d.db.Dialect, voucherID)
			if err == nil {
				entry.Position, err = positionOf(db, v, waitlistRow{VoucherID: voucherID, Place: *found.Place})
			}
			return err
		case found.DrawnAt != nil:
			entry.Status = model.EntryLost
		}
		return nil
	})
	return entry, err
}

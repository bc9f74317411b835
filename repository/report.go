package repository

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"seckill/model"
	"seckill/repository/sqldb"
)

const (
	// soldRows are read at once for a report: 54 ms at the median of a million orders, two cores.
	soldRows        = 5000
	maxTurns        = 1000 // as many as a replay names
	ordersOfVoucher = "orders_newest_of_voucher"
	ordersOfUser    = "orders_newest_of_user"
	ordersOneLive   = "orders_one_live"
)

// Sold yields every order of a voucher with a row, oldest first, with its money, by pages as lists do; see Each.
func (o *Orders) Sold(ctx context.Context, voucherID string, yield func(model.BookedOrder) error) error {
	if err := possible(voucherID); err != nil {
		return err
	}
	return pages(soldRows, func(last model.BookedOrder) (orders []model.BookedOrder, err error) {
		err = o.db.Browse(ctx, "read the sale of voucher "+voucherID, func(db *gorm.DB) error {
			return db.Table(o.db.Dialect.Through("orders", ordersOfVoucher)).
				Select("id, created_at, status, price, unpaid_at, paid_at, closed_at, redeemed_at, paid_reference, "+booked+usedAt).
				Where("voucher_id = ? AND created_at >= ?", voucherID, last.CreatedAt).
				Where("(created_at > ? OR id > ?)", last.CreatedAt, last.ID).
				Order("created_at, id").Limit(soldRows).Find(&orders).Error
		})
		return orders, err
	}, each(yield))
}

// Waited counts the places of a voucher's waitlist.
func (o *Orders) Waited(ctx context.Context, voucherID string) (waited model.ReportWaitlist, err error) {
	if err := possible(voucherID); err != nil {
		return waited, err
	}
	var found struct{ Places, Waiting, PlacesServed, Ahead int64 }
	err = o.db.Browse(ctx, "count the places of voucher "+voucherID, func(db *gorm.DB) error {
		return db.Raw(sqlOf(o.db.Dialect, "waitlist_report"), voucherID).Scan(&found).Error
	})
	if err != nil {
		return waited, err
	}
	waited.Places, waited.Waiting, waited.Turns = found.Places, found.Waiting, map[int64]time.Time{}
	waited.Served, waited.Overtaken, err = inTurn(ctx, o.db, "waitlist_turns", voucherID, found.PlacesServed, waited.Turns)
	waited.Served, waited.Overtaken = waited.Served+found.Ahead, waited.Overtaken+found.Ahead
	waited.Left = waited.Places - waited.Waiting - waited.Served
	return waited, err
}

// inTurn counts the orders that the places up to one became, and those made before an earlier place's or while one
// waits. It reads some thousand places at once: MariaDB's window function compares each row with all before it. It tells
// the first turns.
func inTurn(
	ctx context.Context, d *sqldb.Database, statement, voucherID string, upTo int64, turns map[int64]time.Time,
) (orders, overtaken int64, err error) {
	var latest time.Time
	waits := false
	for last := int64(0); last < upTo && err == nil; last += soldRows {
		var page []struct {
			Waits  bool
			Place  int64
			MadeAt *time.Time
		}
		err = d.Browse(ctx, "read the places of voucher "+voucherID, func(db *gorm.DB) error {
			return db.Raw(sqlOf(d.Dialect, statement), voucherID, last, min(last+soldRows, upTo)).Scan(&page).Error
		})
		for _, place := range page {
			if waits = waits || place.Waits; place.Waits {
				continue
			}
			orders++
			if waits || place.MadeAt != nil && place.MadeAt.Before(latest) {
				overtaken++
			}
			if place.MadeAt != nil && len(turns) < maxTurns {
				turns[place.Place] = *place.MadeAt
			}
			if place.MadeAt != nil && place.MadeAt.After(latest) {
				latest = *place.MadeAt
			}
		}
	}
	return orders, overtaken, err
}

// Answers keeps what attempts to buy heard, as each process has counted them.
type Answers struct{ DB *sqldb.Database }

type answerRow struct {
	VoucherID string
	Process   string
	FirstAt   time.Time
	LatestAt  time.Time
	ByCode    map[string]*model.Heard `gorm:"serializer:json"`
}

// TableName implements gorm's Tabler.
func (answerRow) TableName() string { return "answers" }

// Store stores what a process has counted since it began, by voucher, in place of before: it may be repeated.
func (a *Answers) Store(ctx context.Context, process string, counted map[string]model.Counted) error {
	rows := make([]answerRow, 0, len(counted))
	for id, of := range counted {
		rows = append(rows, answerRow{id, process, stored(of.First), stored(of.Latest), of.ByCode})
	}
	if len(rows) == 0 {
		return nil
	}
	return a.DB.Write(ctx, fmt.Sprintf("store the answers of %d vouchers", len(rows)), func(tx *gorm.DB) error {
		return parted(rows, func(some []answerRow) error {
			return tx.Clauses(clause.OnConflict{UpdateAll: true}).CreateInBatches(some, streamRows).Error
		})
	})
}

// Read is what all processes together have stored for a voucher.
func (a *Answers) Read(ctx context.Context, voucherID string) (model.ReportAnswers, error) {
	answers := model.ReportAnswers{ByCode: map[string]int64{}}
	if err := possible(voucherID); err != nil {
		return answers, err
	}
	var rows []answerRow
	err := a.DB.Browse(ctx, "read the answers of voucher "+voucherID, func(db *gorm.DB) error {
		return db.Where("voucher_id = ?", voucherID).Find(&rows).Error
	})
	for _, row := range rows {
		answers.Heard = append(answers.Heard, row.ByCode)
		for code, heard := range row.ByCode {
			answers.ByCode[code] += int64(heard.Attempts()) //nolint:gosec // no process counts so far
		}
		if answers.Since == nil || row.FirstAt.Before(*answers.Since) {
			answers.Since = &row.FirstAt
		}
		if answers.Until == nil || row.LatestAt.After(*answers.Until) {
			answers.Until = &row.LatestAt
		}
	}
	return answers, err
}

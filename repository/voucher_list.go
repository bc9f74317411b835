package repository

import (
	"cmp"
	"context"
	"slices"

	"gorm.io/gorm"

	"seckill/model"
)

// maxExamined bounds the entries of an index that one page of a list looks at, some
// tenths of a millisecond: so much does the rarest phase among any number of vouchers
// cost. A page that ends there is short, and its cursor goes on behind them.
const maxExamined = 1000

// The indexes of lists. Both have what tells a voucher's phase but for the clock, so
// that only the rows of the page itself are read. vouchersOfState finds the vouchers of
// one state that are, are not, or may be sold out; vouchersNewest has them all.
const (
	vouchersOfState = "vouchers_state"
	vouchersNewest  = "vouchers_newest"
)

// List reads one page of vouchers, newest first. A cursor that is none of ours
// and an unknown phase are VALIDATION.
func (v *Vouchers) List(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	after, err := model.ParseCursor(q.Cursor)
	if err != nil {
		return model.VoucherPage{}, err
	}
	choices, err := v.choices(q)
	if err != nil {
		return model.VoucherPage{}, err
	}
	limit := model.PageSize(q.Limit)
	var rows []voucherRow
	var end model.Cursor // zero: there is nothing behind what was examined
	err = v.db.browse(ctx, "list vouchers", func(db *gorm.DB) error {
		for _, chosen := range choices {
			some, until, err := v.read(db, chosen, after, limit+1)
			if err != nil {
				return err
			}
			rows = append(rows, some...)
			if older(until, end) < 0 { // behind it, not all was examined
				end = until
			}
		}
		return nil
	})
	if err != nil {
		return model.VoucherPage{}, err
	}
	if len(choices) > 1 {
		rows = slices.DeleteFunc(rows, func(r voucherRow) bool { return older(r.cursor(), end) > 0 })
		slices.SortFunc(rows, func(a, b voucherRow) int { return older(a.cursor(), b.cursor()) })
		// One that was divided between the two readings is in both.
		rows = slices.CompactFunc(rows, func(a, b voucherRow) bool { return a.ID == b.ID })
	}
	page := model.VoucherPage{Items: make([]model.Voucher, 0, len(rows))}
	if end.ID != "" {
		page.NextCursor = end.String()
	}
	for i, row := range rows {
		if i == limit {
			page.NextCursor = rows[limit-1].cursor().String()
			break
		}
		if !q.All {
			row.Shards = 0 // is for administrators
		}
		page.Items = append(page.Items, row.view())
	}
	return page, nil
}

func (r voucherRow) cursor() model.Cursor { return model.Cursor{At: r.CreatedAt, ID: r.ID} }

// older compares places in a list: positive when a is behind b. The zero Cursor is behind all.
func older(a, b model.Cursor) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.ID, a.ID)) }

// read reads the newest of a choice behind a cursor, at most so many, and the last entry
// that it has examined; the zero Cursor when there are no more.
func (v *Vouchers) read(db *gorm.DB, c choice, after model.Cursor, most int) (rows []voucherRow, end model.Cursor, err error) {
	if end, err = v.examined(c.entries(db), after); err != nil {
		return nil, end, err
	}
	page := newestFirst(c.entries(db), after, most).Select("id AS listed")
	if end.ID != "" {
		page = page.Where("created_at >= ? AND (created_at > ? OR id >= ?)", end.At, end.At, end.ID)
	}
	err = selectVouchers(db, v.db.dialect).Joins("JOIN (?) AS page ON page.listed = vouchers.id", c.met(page)).
		Order("vouchers.created_at DESC, vouchers.id DESC").Find(&rows).Error
	return rows, end, err
}

// examined is the last entry that a page may look at; the zero Cursor when there are no more.
func (v *Vouchers) examined(entries *gorm.DB, after model.Cursor) (model.Cursor, error) {
	var last []model.Voucher
	err := newestFirst(entries, after, 1).Offset(maxExamined - 1).Select("created_at, id").Find(&last).Error
	if err != nil || len(last) == 0 {
		return model.Cursor{}, err
	}
	return model.Cursor{At: last[0].CreatedAt, ID: last[0].ID}, nil
}

// choice is model.Voucher.PhaseAt in SQL.
type choice struct {
	dialect dialect
	index   string
	// of is the beginning of the index that all entries of the list have. Only they
	// count as examined.
	of []string
	// and is what some of them do not meet.
	and []string
}

// Where an index has sold_out = 2, the parts of the voucher are to be added up. They are
// entries of their own: a list of the public is made of two then.
func (v *Vouchers) choices(q model.VoucherQuery) ([]choice, error) {
	now := v.db.dialect.now
	c := choice{dialect: v.db.dialect, index: vouchersNewest}
	if !q.All {
		c.and = append(c.and, "state IN ('published', 'paused')")
	}
	onSale := "begin_at <= " + now + " AND end_at > " + now
	notPaused := "state <> 'paused'"
	if q.OnSale {
		c.and = append(c.and, notPaused, onSale)
	}
	switch q.Phase {
	case "":
	case model.PhaseEnded:
		c.and = append(c.and, "end_at <= "+now)
	case model.PhaseUpcoming:
		c.and = append(c.and, notPaused, "begin_at > "+now)
	case model.PhasePaused:
		return []choice{c.ofState("state = 'paused'", "sold_out = 0", "end_at > "+now)}, nil
	case model.PhaseLive, model.PhaseSoldOut:
		soldOut, inParts := "sold_out = 0", "vouchers.remaining + "+partsRemaining+" > 0"
		if q.Phase == model.PhaseSoldOut {
			soldOut, inParts = "sold_out = 1", "vouchers.remaining + "+partsRemaining+" = 0"
		}
		if !q.All {
			const published = "state = 'published'"
			return []choice{c.ofState(published, soldOut, onSale), c.ofState(published, "sold_out = 2", onSale, inParts)}, nil
		}
		c.and = append(c.and, notPaused, onSale, "("+soldOut+" OR (sold_out = 2 AND "+inParts+"))")
	default:
		return nil, model.Invalid("query.phase", "must be one of upcoming, live, sold_out, ended, paused")
	}
	return []choice{c}, nil
}

// ofState chooses from the vouchers of one state. A paused voucher never counts as sold
// out, see the migration.
func (c choice) ofState(state, soldOut string, and ...string) choice {
	c.index, c.of, c.and = vouchersOfState, []string{state, soldOut}, and
	return c
}

// entries are those of the index.
func (c choice) entries(db *gorm.DB) *gorm.DB {
	return where(db.Table(c.dialect.through("vouchers", c.index)), c.of)
}

// met restricts entries to those that belong in the list.
func (c choice) met(entries *gorm.DB) *gorm.DB { return where(entries, c.and) }

func where(query *gorm.DB, conditions []string) *gorm.DB {
	for _, condition := range conditions {
		query = query.Where(condition)
	}
	return query
}

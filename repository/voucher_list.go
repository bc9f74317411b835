package repository

import (
	"context"
	"slices"
	"strings"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// maxExamined bounds the entries of an index that one page of a list looks at, some tenths of a millisecond: so much
// does the rarest phase among any number of vouchers cost. A page that ends there is short, and its cursor goes on
// behind them. Of a list by the words of a title, the row of each is read: some milliseconds.
const maxExamined = 1000

// The indexes of lists. Both have what tells a voucher's phase but for the clock, so
// that only the rows of the page itself are read. vouchersOfState finds the vouchers of
// one state that are, or are not, sold out; vouchersNewest has them all.
const (
	vouchersOfState = "vouchers_state"
	vouchersNewest  = "vouchers_newest"
)

// List reads one page of vouchers, newest first. A cursor that is none of ours, and an
// unknown phase or state, are VALIDATION.
func (v *Vouchers) List(ctx context.Context, q model.VoucherQuery) (model.VoucherPage, error) {
	after, err := model.ParseCursor(q.Cursor)
	if err != nil {
		return model.VoucherPage{}, err
	}
	chosen, err := v.choice(q)
	if err != nil {
		return model.VoucherPage{}, err
	}
	limit := model.PageSize(q.Limit)
	var rows []voucherRow
	var end model.Cursor // zero: there is nothing behind what was examined
	err = v.db.Browse(ctx, "list vouchers", func(db *gorm.DB) error {
		var err error
		rows, end, err = v.read(db, chosen, after, limit+1)
		return err
	})
	if err != nil {
		return model.VoucherPage{}, err
	}
	page := model.VoucherPage{Items: make([]model.Voucher, 0, len(rows))}
	if end.ID != "" {
		page.NextCursor = end.String()
	}
	for i, row := range rows {
		if i == limit {
			last := rows[limit-1]
			page.NextCursor = model.Cursor{At: last.CreatedAt, ID: last.ID}.String()
			break
		}
		page.Items = append(page.Items, row.view())
	}
	return page, nil
}

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
	err = selectVouchers(db, v.db.Dialect).Joins("JOIN (?) AS page ON page.listed = vouchers.id", c.met(page)).
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
	dialect sqldb.Dialect
	index   string
	// of is the beginning of the index that all entries of the list have. Only they count as examined.
	of []string
	// and is what some of them do not meet, and words are of their title.
	and, words []string
}

func (v *Vouchers) choice(q model.VoucherQuery) (choice, error) {
	c, err := v.ofPhase(q)
	if q.State != "" {
		if !slices.Contains(model.VoucherStates(), q.State) {
			return c, model.Invalid("query.state", "is no state of a voucher")
		}
		c.and = append(c.and, "state = '"+string(q.State)+"'")
	}
	c.words = strings.Fields(q.Words)
	c.words = c.words[:min(len(c.words), maxWords)]
	return c, err
}

func (v *Vouchers) ofPhase(q model.VoucherQuery) (choice, error) {
	now := v.db.Dialect.Now
	c := choice{dialect: v.db.Dialect, index: vouchersNewest}
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
		return c.ofState("state = 'paused'", "sold_out = 0", "end_at > "+now), nil
	case model.PhaseLive, model.PhaseSoldOut:
		soldOut := "sold_out = 0"
		if q.Phase == model.PhaseSoldOut {
			soldOut = "sold_out = 1"
		}
		if !q.All {
			return c.ofState("state = 'published'", soldOut, onSale), nil
		}
		c.and = append(c.and, notPaused, soldOut, onSale)
	default:
		return c, model.Invalid("query.phase", "must be one of upcoming, live, sold_out, ended, paused")
	}
	return c, nil
}

// ofState chooses from the vouchers of one state. A paused voucher never counts as sold out, see the migration.
func (c choice) ofState(state, soldOut, window string) choice {
	c.index, c.of, c.and = vouchersOfState, []string{state, soldOut}, []string{window}
	return c
}

// entries are those of the index.
func (c choice) entries(db *gorm.DB) *gorm.DB {
	return where(db.Table(c.dialect.Through("vouchers", c.index)), c.of)
}

// met restricts entries to those that belong in the list.
func (c choice) met(entries *gorm.DB) *gorm.DB { return titled(where(entries, c.and), c.words) }

// titled restricts vouchers to those whose title has all of the words.
func titled(vouchers *gorm.DB, words []string) *gorm.DB {
	for _, word := range words {
		vouchers = vouchers.Where("title LIKE ? ESCAPE '!'", "%"+strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(word)+"%")
	}
	return vouchers
}

func where(query *gorm.DB, conditions []string) *gorm.DB {
	for _, condition := range conditions {
		query = query.Where(condition)
	}
	return query
}

package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Vouchers keeps vouchers. Whatever changes a voucher's row makes its version grow: one version, one row.
type Vouchers struct {
	db       *sqldb.Database
	currency string
}

// NewVouchers makes vouchers in a currency (ISO 4217); existing ones keep theirs.
func NewVouchers(db *sqldb.Database, currency string) *Vouchers {
	return &Vouchers{db: db, currency: currency}
}

// Create makes a voucher for the administrator by. With an idempotency key it happens once.
func (v *Vouchers) Create(
	ctx context.Context, id string, asked model.VoucherFields, by string, once model.Idempotency,
) (model.Voucher, error) {
	voucher := model.Voucher{ID: id, VoucherFields: storedFields(asked), Version: 1, Revision: 1}
	voucher.Currency, voucher.Remaining, voucher.Waiting = v.currency, asked.Stock, 0
	if voucher.State == "" {
		voucher.State = model.VoucherPublished
	}
	if !voucher.BeginAt.Before(voucher.EndAt) {
		return model.Voucher{}, windowError()
	}
	if err := voucher.CheckRules(); err != nil {
		return model.Voucher{}, err
	}
	return v.once(ctx, "create voucher "+id, once, func(tx *gorm.DB, first func() (*answer, error)) (*answer, error) {
		if given, err := first(); err != nil || given != nil {
			return given, err
		}
		// The mode's lock: a database is adopted only while it has no voucher.
		_, now, err := lockMode(tx, v.db.Dialect)
		if err != nil {
			return nil, err
		}
		voucher.CreatedAt = stored(now.Time)
		if err := tx.Create(&voucher).Error; err != nil {
			return nil, err
		}
		if voucher.Allocation == model.ByDraw {
			if err := newDraw(tx, id); err != nil {
				return nil, err
			}
		}
		return answerOf(voucher.At(now.Time)), logChange(v.db, tx, adminChange{
			at: voucher.CreatedAt, actor: by, action: model.ActionVoucherCreate, subject: id, after: voucher.Decided(),
		})
	})
}

// Get reads one voucher in any state, as of the database's clock; NOT_FOUND when there is none.
func (v *Vouchers) Get(ctx context.Context, id string) (model.Voucher, error) {
	return got(ctx, v.db.Read, "get voucher "+id, func(db *gorm.DB) (model.Voucher, error) {
		row, err := readVoucher(db, v.db.Dialect, id)
		return row.view(), err
	})
}

// GetMany reads vouchers by id for purchases; absent ones are left out.
func (v *Vouchers) GetMany(ctx context.Context, ids []string) (map[string]model.Voucher, error) {
	return v.many(ctx, v.db.Read, ids)
}

// ShowMany is GetMany on the connections of lists.
func (v *Vouchers) ShowMany(ctx context.Context, ids []string) (map[string]model.Voucher, error) {
	return v.many(ctx, v.db.Browse, ids)
}

func (v *Vouchers) many(ctx context.Context, read reader, ids []string) (map[string]model.Voucher, error) {
	vouchers := make(map[string]model.Voucher, len(ids))
	ids = validIDs(ids)
	if len(ids) == 0 {
		return vouchers, nil
	}
	rows, err := list[voucherRow](ctx, read, fmt.Sprintf("get %d vouchers", len(ids)), func(db *gorm.DB) *gorm.DB {
		return selectVouchers(db, v.db.Dialect).Where("id IN ?", ids)
	})
	for _, row := range rows {
		vouchers[row.ID] = row.view()
	}
	return vouchers, err
}

// IDs lists every voucher, oldest first.
func (v *Vouchers) IDs(ctx context.Context) (ids []string, err error) {
	err = v.db.Browse(ctx, "list voucher ids", func(db *gorm.DB) error {
		return db.Table("vouchers").Order("created_at, id").Pluck("id", &ids).Error
	})
	return ids, err
}

// possible is NOT_FOUND for an id that cannot exist: SQL ignores blanks at the end, and mixes no character sets.
func possible(id string) error {
	if !model.ValidID(id) {
		return fmt.Errorf("voucher %q: %w", id, model.NotFound("voucher"))
	}
	return nil
}

func windowError() error { return model.Invalid("body.end_at", "must be after begin_at") }

// Patch changes what is set. VALIDATION: an empty window. CONFLICT: rules of a fair sale that has an order. NOT_FOUND:
// no such voucher. PRECONDITION_FAILED: the locked row has none of the tags asked for.
func (v *Vouchers) Patch(ctx context.Context, id string, patch model.VoucherPatch) (model.Voucher, error) {
	var row voucherRow
	err := v.db.Write(ctx, "patch voucher "+id, func(tx *gorm.DB) (err error) {
		if row, err = lockVoucher(tx, v.db.Dialect, id); err != nil {
			return err
		}
		if err := patch.IfMatch.Check(row.Voucher); err != nil {
			return err
		}
		before := row.Voucher
		patch.Apply(&row.VoucherFields)
		row.VoucherFields = storedFields(row.VoucherFields)
		if !row.BeginAt.Before(row.EndAt) {
			return windowError()
		}
		if err := changeDraw(tx, &before, &row.Voucher); err != nil {
			return err
		}
		if err := changeRules(tx, &before, row); err != nil {
			return err
		}
		if row.Shortens(&before.VoucherFields) {
			// Locked: a payment that is not committed yet is of before.
			var sold []string
			err := tx.Raw("SELECT id FROM "+v.db.Dialect.Through("orders", ordersOfVoucher)+" WHERE voucher_id = ? AND status IN (?, ?) LIMIT 1"+
				v.db.Dialect.Share, id, model.OrderPaid, model.OrderRedeemed).Scan(&sold).Error
			if err != nil {
				return fmt.Errorf("look for paid orders: %w", err)
			}
			if len(sold) > 0 {
				return model.Conflict("Orders are paid: the times of their codes, and to give them back, can only be made longer.")
			}
		}
		if err := update(tx, &row.Voucher); err != nil {
			return err
		}
		return logChange(v.db, tx, adminChange{
			at: stored(row.Now.Time), actor: patch.By, action: model.ActionVoucherChange, subject: id,
			before: before.Decided(), after: row.Decided(),
		})
	})
	if err != nil {
		return model.Voucher{}, err
	}
	return row.view(), nil
}

// storedFields are the fields as a database keeps them: the times in whole microseconds.
func storedFields(f model.VoucherFields) model.VoucherFields {
	f.BeginAt, f.EndAt = stored(f.BeginAt), stored(f.EndAt)
	if f.Early.From == nil {
		f.Early = model.Early{}
	} else {
		f.Early.From = new(stored(*f.Early.From))
	}
	return f
}

// changeRules refuses rules that do not fit the voucher, and other rules once it has an order, entry or waiter.
func changeRules(tx *gorm.DB, before *model.Voucher, after voucherRow) error {
	if err := after.CheckRules(); err != nil || after.SameRules(&before.VoucherFields) {
		return err
	}
	if after.Places > 0 {
		return model.RulesFixed()
	}
	for _, table := range []string{"orders", "draw_entries"} {
		found, err := exists(tx, "SELECT 1 FROM "+table+" WHERE voucher_id = ?", after.ID)
		if err != nil {
			return err
		}
		if found {
			return model.RulesFixed()
		}
	}
	return nil
}

func readVoucher(tx *gorm.DB, d sqldb.Dialect, id string) (voucherRow, error) {
	return take[voucherRow](selectVouchers(tx, d), "voucher", id)
}

// lockVoucher is readVoucher with the row locked. GORM omits FOR UPDATE in SQLite: BEGIN IMMEDIATE excludes others.
func lockVoucher(tx *gorm.DB, d sqldb.Dialect, id string) (voucherRow, error) {
	row, err := readVoucher(locked(tx), d, id)
	if err != nil {
		err = fmt.Errorf("lock voucher %s: %w", id, err)
	}
	return row, err
}

// lockSale locks the order mode and then a voucher, as every transaction does that needs both.
func lockSale(tx *gorm.DB, d sqldb.Dialect, id string) (mode model.OrderMode, row voucherRow, err error) {
	if mode, _, err = lockMode(tx, d); err == nil {
		row, err = lockVoucher(tx, d, id)
	}
	return mode, row, err
}

// update writes a locked row back, with the next version and revision.
func update(tx *gorm.DB, v *model.Voucher) error {
	v.Version++
	v.Revision++
	done := tx.Model(&model.Voucher{}).Where("id = ?", v.ID).
		Select("*").Omit("ID", "Currency", "Waiting", "CreatedAt").
		Updates(v)
	if done.Error == nil && done.RowsAffected != 1 {
		return fmt.Errorf("the locked row matched %d times", done.RowsAffected)
	}
	return done.Error
}

// Stats counts one voucher's units and orders at one instant. Every status is among them, also when no order has it.
func (v *Vouchers) Stats(ctx context.Context, id string) (model.Stats, error) {
	type row struct {
		Stock, Remaining, Orders, Live int64
		Status                         *model.OrderStatus
	}
	rows, err := counted[row](ctx, v.db, "count voucher "+id, "voucher_count", id)
	if err != nil {
		return model.Stats{}, err
	}
	stats := model.Stats{OrdersByStatus: make(map[model.OrderStatus]int64)}
	for _, status := range model.OrderStatuses() {
		stats.OrdersByStatus[status] = 0
	}
	for _, row := range rows {
		stats.Stock, stats.Remaining = row.Stock, row.Remaining
		stats.Sold += row.Live
		if row.Status != nil {
			stats.OrdersByStatus[*row.Status] = row.Orders
		}
	}
	return stats, nil
}

// Takings are what a voucher's orders cost together.
func (v *Vouchers) Takings(ctx context.Context, id string) (model.Takings, error) {
	type row struct {
		model.Taking

		Status *model.OrderStatus
		Taken  int64
	}
	rows, err := counted[row](ctx, v.db, "count what voucher "+id+" has taken", "voucher_takings", id)
	takings := model.Takings{ByStatus: make(map[model.OrderStatus]model.Taking, len(rows))}
	live := int64(0)
	for _, row := range rows {
		takings.Adrift = row.Taken
		if row.Status == nil {
			continue
		}
		takings.ByStatus[*row.Status] = row.Taking
		if (model.Order{Status: *row.Status}).Live() {
			live += row.Orders
		}
	}
	takings.Adrift -= live
	return takings, err
}

// Since is what has come since an instant.
func (v *Vouchers) Since(ctx context.Context, at time.Time) (day model.Day, err error) {
	err = v.db.Browse(ctx, "count what has come", func(db *gorm.DB) error {
		return db.Raw(sqlOf(v.db.Dialect, "day"), at, at, at).Scan(&day).Error
	})
	return day, err
}

// Audit checks a voucher in the database: every unit remains or is a live order's, and as many wait as it says.
func (v *Vouchers) Audit(ctx context.Context, id string) (model.Audit, error) {
	type row struct {
		model.AuditDatabase

		PlacesWaiting int64
		Mode          model.OrderMode
		Draw          bool
	}
	rows, err := counted[row](ctx, v.db, "audit voucher "+id, "voucher_audit", id)
	if err != nil {
		return model.Audit{}, err
	}
	found := rows[0]
	audit := model.Audit{
		VoucherID: id, Mode: found.Mode, Database: found.AuditDatabase, Drift: []model.DriftedOrder{}, Draw: found.Draw,
	}
	audit.Wrong = differs(audit.Wrong, "places of those who wait", found.Waiting, found.PlacesWaiting)
	if audit.Draw {
		if audit.Wrong, err = v.auditDraw(ctx, id, audit.Wrong); err != nil {
			return audit, err
		}
	}
	audit.Balanced = found.Stock == found.Remaining+found.LiveOrders && len(audit.Wrong) == 0
	return audit, nil
}

// auditDraw adds in what a draw differs from what it says of itself.
func (v *Vouchers) auditDraw(ctx context.Context, id string, wrong []string) ([]string, error) {
	type row struct {
		Known                              bool
		Entries, Position, Entered, Places int64
		DrawnAt                            *time.Time
	}
	rows, err := counted[row](ctx, v.db, "audit the draw of voucher "+id, "draw_audit", id)
	if err != nil {
		return wrong, err
	}
	found := rows[0]
	if !found.Known {
		return append(wrong, "the row of draws, with the secret, is not there"), nil
	}
	wrong = differs(wrong, "rows of draw_entries", found.Entries, found.Entered)
	wrong = differs(wrong, "rows of draw_places", found.Position, found.Places)
	if found.DrawnAt != nil {
		wrong = differs(wrong, "entries served of a draw that is done", found.Entries, found.Position)
	}
	return wrong, nil
}

func differs(list []string, what string, want, have int64) []string {
	if want == have {
		return list
	}
	return append(list, fmt.Sprintf("%s: %d, and there should be %d", what, have, want))
}

// counted reads what a statement of the folder sql counts of a voucher: one row at the least, or NOT_FOUND.
func counted[T any](ctx context.Context, d *sqldb.Database, action, statement, id string) (rows []T, err error) {
	if err := possible(id); err != nil {
		return nil, err
	}
	err = d.Browse(ctx, action, func(db *gorm.DB) error {
		err := db.Raw(sqlOf(d.Dialect, statement), id).Scan(&rows).Error
		if err == nil && len(rows) == 0 {
			return model.NotFound("voucher")
		}
		return err
	})
	return rows, err
}

// maxExamined bounds the index entries that a page looks at, in tenths of a millisecond, for the rarest phase too. A
// page that ends there is short, and its cursor goes on behind.
const maxExamined = 1000

// The indexes of lists have what tells a phase but for the clock: only a page's rows are read. vouchersOfState has
// those of one state, sold out or not, vouchersNewest all.
const (
	vouchersOfState = "vouchers_state"
	vouchersNewest  = "vouchers_newest"
)

// List reads one page of vouchers, newest first. VALIDATION: no cursor of ours, an unknown phase or state.
func (v *Vouchers) List(ctx context.Context, q model.VoucherQuery) (page model.VoucherPage, err error) {
	c, err := v.choice(q)
	if err != nil {
		return page, err
	}
	var end model.Cursor // zero: there is nothing behind what was examined
	at := func(r voucherRow) model.Cursor { return model.Cursor{At: r.CreatedAt, ID: r.ID} }
	rows, next, err := paged(ctx, v.db, "list vouchers", q.Cursor, q.Limit, at,
		func(db *gorm.DB, after model.Cursor, most int) (_ *gorm.DB, err error) {
			if end, err = v.examined(c.entries(db), after); err != nil {
				return nil, err
			}
			found := newestFirst(c.entries(db), after, most).Select("id AS listed")
			if end.ID != "" {
				found = found.Where("created_at >= ? AND (created_at > ? OR id >= ?)", end.At, end.At, end.ID)
			}
			return selectVouchers(db, v.db.Dialect).Joins("JOIN (?) AS page ON page.listed = vouchers.id",
				where(found, c.and)).Order("vouchers.created_at DESC, vouchers.id DESC"), nil
		})
	if page.NextCursor = next; next == "" && end.ID != "" {
		page.NextCursor = end.String()
	}
	page.Items = make([]model.Voucher, len(rows))
	for i, row := range rows {
		page.Items[i] = row.view()
	}
	return page, err
}

// Shelf reads one page of the newest maxTitles vouchers in an order that people sort by; its cursor is how many come
// before. VALIDATION: no such order, or no cursor of it.
func (v *Vouchers) Shelf(ctx context.Context, q model.VoucherQuery) (shelf model.Shelf, err error) {
	by, down := strings.CutPrefix(q.By, "-")
	order := by + ", id"
	if down {
		order = by + " DESC, id"
	}
	if by == "" { // see the statement
		order = "place, CASE WHEN place < 3 THEN end_at WHEN place < 5 THEN begin_at END, end_at DESC, id"
	} else if !slices.Contains([]string{"title", "price", "remaining", "taken", "begin_at", "end_at"}, by) {
		return shelf, model.Invalid("query.by", "is no order of vouchers")
	}
	places := []string{"live", "sold_out", "paused", "upcoming", "draft", "ended", "archived"}
	of := cmp.Or(string(q.Phase), string(q.State))
	if of != "" && !slices.Contains(places, of) {
		return shelf, model.Invalid("query.state", "is no state of a voucher")
	}
	before, err := strconv.Atoi(cmp.Or(q.Cursor, "0"))
	if err != nil || before < 0 {
		return shelf, model.Invalid("query.cursor", "is not a cursor of this list")
	}
	var counts []struct{ Place, Vouchers int64 }
	var ids []string
	limit, words := model.PageSize(q.Limit), strings.Fields(q.Words)
	err = v.db.Browse(ctx, "sort vouchers", func(db *gorm.DB) error {
		found := titled(db.Table("(?) AS shelf", db.Raw(sqlOf(v.db.Dialect, "voucher_shelf"), maxTitles)), words[:min(len(words), maxWords)])
		if !q.From.IsZero() {
			found = found.Where("end_at > ?", stored(q.From))
		}
		if !q.To.IsZero() {
			found = found.Where("begin_at < ?", stored(q.To))
		}
		found = found.Session(&gorm.Session{})
		page := found
		if of != "" {
			page = found.Where("place = ?", slices.Index(places, of))
		}
		return cmp.Or(found.Select("place, COUNT(*) AS vouchers").Group("place").Find(&counts).Error,
			page.Order(order).Offset(before).Limit(limit+1).Pluck("id", &ids).Error)
	})
	shelf.Counts = map[string]int64{}
	for _, of := range counts {
		shelf.Counts[places[of.Place]] = of.Vouchers
		shelf.Counts[""] += of.Vouchers
	}
	if len(ids) > limit {
		ids, shelf.NextCursor = ids[:limit], strconv.Itoa(before+limit)
	}
	if err != nil {
		return shelf, err
	}
	known, err := v.ShowMany(ctx, ids)
	for _, id := range ids {
		shelf.Items = append(shelf.Items, known[id])
	}
	return shelf, err
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

type choice struct {
	dialect sqldb.Dialect
	index   string
	// of is the beginning of the index that all entries of the list have. Only they count as examined.
	of  []string
	and []string // what some of them do not meet
}

func (v *Vouchers) choice(q model.VoucherQuery) (choice, error) {
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

func (c choice) entries(db *gorm.DB) *gorm.DB {
	return where(db.Table(c.dialect.Through("vouchers", c.index)), c.of)
}

// titled restricts vouchers to those whose title has all of the words.
func titled(vouchers *gorm.DB, words []string) *gorm.DB {
	for _, word := range words {
		vouchers = vouchers.Where("title LIKE ? ESCAPE '!'",
			"%"+likeness.Replace(word)+"%")
	}
	return vouchers
}

var likeness = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_") //nolint:gochecknoglobals // constant

func where(query *gorm.DB, conditions []string) *gorm.DB {
	for _, condition := range conditions {
		query = query.Where(condition)
	}
	return query
}

package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

// Orders keeps orders.
type Orders struct {
	db        *sqldb.Database
	stock     stock
	terms     terms
	readFirst atomic.Int64 // transactions that are still to look for existing rows first
	slowly    atomic.Int64 // transactions that are still to take the units of one voucher after the other
}

// OrderOptions is how orders are made.
type OrderOptions struct {
	Strategy model.StockStrategy // empty: conditional
	// PaymentWindow is how long an order stays unpaid before it expires.
	PaymentWindow time.Duration
	// Mode is how these orders are made; empty: sync. Units are taken only from a database that is in the same mode.
	Mode model.OrderMode
}

// NewOrders fails when the database cannot do what the options ask for.
func NewOrders(db *sqldb.Database, options OrderOptions) (*Orders, error) {
	if options.Strategy == "" {
		options.Strategy = model.StockConditional
	}
	if options.Mode == "" {
		options.Mode = model.ModeSync
	}
	if options.Mode != model.ModeSync && options.Mode != model.ModeAsync {
		return nil, fmt.Errorf("there is no order mode %q", options.Mode)
	}
	if options.PaymentWindow <= 0 {
		return nil, fmt.Errorf("the payment window is %s; it must be positive", options.PaymentWindow)
	}
	stock, err := stockOf(db, options.Strategy)
	if err != nil {
		return nil, err
	}
	return &Orders{
		db: db, stock: stock, terms: terms{window: options.PaymentWindow, mode: options.Mode, db: db},
	}, nil
}

// Get reads one order; NOT_FOUND when there is none.
func (o *Orders) Get(ctx context.Context, id string) (model.Order, error) {
	return byID[model.Order](ctx, o.db, "order", id)
}

// Find reads orders by id; absent ones are left out.
func (o *Orders) Find(ctx context.Context, ids []string) (map[string]model.Order, error) {
	return got(ctx, o.db.Read, fmt.Sprintf("find %d orders", len(ids)),
		func(db *gorm.DB) (map[string]model.Order, error) { return findOrders(db, ids) })
}

// Failed reads those of the orders that have failed.
func (o *Orders) Failed(ctx context.Context, ids []string) (map[string]model.Order, error) {
	return got(ctx, o.db.Read, fmt.Sprintf("look for failed ones among %d orders", len(ids)),
		func(db *gorm.DB) (map[string]model.Order, error) {
			return findOrders(db.Where("status = ?", model.OrderFailed).Session(&gorm.Session{}), ids)
		})
}

func findOrders(db *gorm.DB, ids []string) (map[string]model.Order, error) {
	found := make(map[string]model.Order, len(ids))
	ids = validIDs(ids)
	for some := range slices.Chunk(ids, streamRows) {
		var rows []model.Order
		if err := db.Where("id IN ?", some).Find(&rows).Error; err != nil {
			return nil, fmt.Errorf("find orders: %w", err)
		}
		for _, row := range rows {
			found[row.ID] = row
		}
	}
	return found, nil
}

// detailReadings until an order and its history agree: a move falls between. Those repaired by hand never agree.
const detailReadings = 3

// Detail is Get with everything that happened to the order.
func (o *Orders) Detail(ctx context.Context, id string) (model.OrderDetail, error) {
	return got(ctx, o.db.Read, "get order "+id+" with its history", func(db *gorm.DB) (d model.OrderDetail, err error) {
		for range detailReadings {
			if d.Order, err = take[model.Order](db, "order", id); err != nil {
				return d, err
			}
			own := db.Where("order_id = ?", id).Order("id").Session(&gorm.Session{})
			if err := cmp.Or(own.Find(&d.Uses).Error, own.Find(&d.History).Error); err != nil {
				return d, fmt.Errorf("read its uses and its history: %w", err)
			}
			if len(d.History) == 0 || d.History[len(d.History)-1].To == d.Status {
				break
			}
		}
		d.History = history(d.Order, d.History)
		return d, nil
	})
}

// List reads one page of orders, or of those that the words find, newest first. VALIDATION: a cursor not ours, or a
// status of no order. An index finds each list: all orders as the newest of each status, others by user, voucher or
// instant.
func (o *Orders) List(ctx context.Context, q model.OrderQuery) (page model.OrderPage, err error) {
	at := func(order model.Order) model.Cursor { return model.Cursor{At: q.Span.At(order), ID: order.ID} }
	page.Items, page.NextCursor, err = paged(ctx, o.db, "list orders", q.Cursor, q.Limit, at,
		func(db *gorm.DB, after model.Cursor, most int) (*gorm.DB, error) { return o.listed(db, q, after, most) })
	return page, err
}

// booked has what the payments and refunds of an order received and returned, as reports count them.
const booked = "(SELECT COALESCE(SUM(amount), 0) FROM payments WHERE order_id = orders.id AND status = 'succeeded') AS received, " +
	"(SELECT COALESCE(SUM(amount), 0) FROM refunds WHERE order_id = orders.id AND status = 'done') AS returned"

// buyer has the name of an account.
const buyer = ", COALESCE((SELECT username FROM accounts WHERE accounts.id = orders.user_id), '') AS buyer"

// usedAt has the place of the use that is not undone.
const usedAt = ", COALESCE((SELECT place FROM uses WHERE order_id = orders.id AND live = 1), '') AS place"

// Each calls yield for every order of the query with its money, in the order of List, without its Limit. It reads page
// by page, so that a slow reader keeps no connection; an order made meanwhile is left out. An error of yield ends it
// and is returned.
func (o *Orders) Each(ctx context.Context, q model.OrderQuery, yield func(model.BookedOrder) error) error {
	after, err := model.ParseCursor(q.Cursor)
	if err != nil {
		return err
	}
	return pages(streamRows, func(last model.BookedOrder) (orders []model.BookedOrder, err error) {
		if last.ID != "" {
			after = model.Cursor{At: q.Span.At(last.Order), ID: last.ID}
		}
		err = o.db.Browse(ctx, "list orders", func(db *gorm.DB) error {
			found, err := o.listed(db, q, after, streamRows)
			if err != nil || found == nil {
				return err
			}
			return found.Select("orders.*, paid_reference AS reference, " + booked + usedAt + buyer).Find(&orders).Error
		})
		return orders, err
	}, each(yield))
}

// listed reads rows of orders. The indexes give ids alone: read backwards for rows, they have each row read.
func (o *Orders) listed(db *gorm.DB, q model.OrderQuery, after model.Cursor, most int) (*gorm.DB, error) {
	if q.UserID != "" && !model.ValidUserID(q.UserID) || q.VoucherID != "" && !model.ValidID(q.VoucherID) {
		return nil, nil //nolint:nilnil // there are no such orders; see take
	}
	if q.Status != "" && !slices.Contains(model.OrderStatuses(), q.Status) {
		return nil, model.Invalid("query.status", "is not a status of orders")
	}
	s := search{db: db, dialect: o.db.Dialect, status: q.Status, span: q.Span, after: after, most: most}
	if err := s.find(q); err != nil || len(s.lists) == 0 {
		return nil, err
	}
	return db.Table("orders").Joins("JOIN ("+s.ids()+") AS found ON found.id = orders.id", s.lists...).
		Order("orders." + s.column() + " DESC, orders.id DESC").Limit(most), nil
}

func (s *search) ids() string {
	return strings.TrimPrefix(strings.Repeat(" UNION SELECT id FROM (?) AS list", len(s.lists)), " UNION ")
}

// Counts are how many orders of each status a query has, whatever its own: of more than model.MaxCounted one more.
func (o *Orders) Counts(ctx context.Context, q model.OrderQuery) (map[model.OrderStatus]int64, error) {
	counts := make(map[model.OrderStatus]int64)
	return counts, o.db.Browse(ctx, "count orders", func(db *gorm.DB) error {
		for _, status := range model.OrderStatuses() {
			s := search{db: db, dialect: o.db.Dialect, status: status, span: q.Span, most: model.MaxCounted + 1}
			err := s.find(q)
			if err == nil && len(s.lists) > 0 {
				var found int64
				err = db.Raw("SELECT COUNT(*) FROM ("+s.ids()+") AS found", s.lists...).Scan(&found).Error
				counts[status] = min(found, model.MaxCounted+1)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Buyers yields each user who has a live order or waits before another, page by page: who had and has one is there.
func (o *Orders) Buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error {
	if !model.ValidID(v.ID) {
		return nil // see take
	}
	which := "slot = 1"
	if v.Cooldown > 0 {
		which = "(slot = 1 OR cooldown_until > " + o.db.Dialect.Now + ")"
	}
	return pages(streamRows, func(last string) (users []string, err error) {
		err = o.db.Read(ctx, "list buyers of voucher "+v.ID, func(db *gorm.DB) error {
			return db.Table(o.db.Dialect.Through("orders", ordersOneLive)).Where("voucher_id = ? AND user_id > ? AND "+
				which, v.ID, last).
				Order("user_id").Limit(streamRows).Pluck("user_id", &users).Error
		})
		return users, err
	}, each(yield))
}

// Live yields the live orders of a voucher by user, as id, voucher and user, page by page: what stays live is there.
func (o *Orders) Live(ctx context.Context, voucherID string, yield func(model.Order) error) error {
	if !model.ValidID(voucherID) {
		return nil // see take
	}
	return pages(snapshotRows, func(last model.Order) (orders []model.Order, err error) {
		err = o.db.Browse(ctx, "list live orders of voucher "+voucherID, func(db *gorm.DB) error {
			// These columns are all in the index that finds the rows.
			return db.Table(o.db.Dialect.Through("orders", ordersOneLive)).Select("id, voucher_id, user_id").
				Where("voucher_id = ? AND user_id > ? AND slot = 1", voucherID, last.UserID).
				Order("user_id").Limit(snapshotRows).Find(&orders).Error
		})
		return orders, err
	}, each(yield))
}

const (
	ordersNewest = "orders_newest"
	// maxTitles is how many vouchers are searched for words of a title, the newest first: some ten milliseconds.
	maxTitles = 10_000
	// maxTitled is of how many of those the orders are found, the newest first.
	maxTitled = 20
	maxWords  = 8
)

type search struct {
	db      *gorm.DB
	dialect sqldb.Dialect
	status  model.OrderStatus // empty: any
	span    model.Span
	after   model.Cursor
	most    int
	lists   []any // of ids
}

// byInstant are the orders that have an instant, read in its order: at and order_id are those of order_instants.
func byInstant(db *gorm.DB, d sqldb.Dialect, of model.OrderInstant) *gorm.DB {
	return db.Table("order_instants"+d.Then+"orders ON orders.id = order_id").Where("instant = ?", of)
}

func (s *search) column() string { return string(cmp.Or(s.span.Of, model.InstantCreated)) + "_at" }

// other reports whether the lists go by an instant that most indexes do not have.
func (s *search) other() bool { return s.column() != "created_at" }

// through are orders by an index that ends in created_at and id.
func (s *search) through(index string) *gorm.DB {
	return s.db.Table(behind(s.dialect, "orders", index, s.after.ID != "" || s.span.Of != ""))
}

func (s *search) find(q model.OrderQuery) error {
	words := strings.Fields(q.Words)
	switch {
	case q.UserID != "":
		s.add(having(s.through(ordersOfUser).Where("user_id = ?", q.UserID), "voucher_id = ?", q.VoucherID))
		return nil
	case q.VoucherID != "":
		s.ofVouchers(q.VoucherID)
		return nil
	case len(words) == 0 && q.CodeHash == "":
		s.all()
		return nil
	}
	if q.CodeHash != "" {
		s.add(s.db.Table("orders").Where("id = (SELECT order_id FROM order_codes WHERE code_hash = ?)",
			[]byte(q.CodeHash)))
	}
	if len(words) == 1 {
		s.ofUser(words[0])
	}
	if len(words) == 0 {
		return nil
	}
	if paid := (model.Elsewhere{Reference: strings.TrimSpace(q.Words)}); paid.Check() == nil {
		s.add(s.db.Table("orders").Where("id IN (SELECT order_id FROM payments WHERE reference = ?)", paid.Reference))
	}
	return s.ofTitle(words[:min(len(words), maxWords)])
}

func (s *search) all() {
	if s.other() {
		s.addBy("at", "order_id", byInstant(s.db, s.dialect, s.span.Of))
		return
	}
	for _, status := range model.OrderStatuses() {
		if s.status == "" || s.status == status {
			s.add(s.db.Table(s.dialect.Through("orders", ordersNewest)).Where("status = ?", status))
		}
	}
}

func (s *search) add(list *gorm.DB) {
	if s.other() {
		list = list.Where(s.column() + " IS NOT NULL")
	}
	s.addBy(s.column(), "id", list)
}

func (s *search) addBy(column, id string, list *gorm.DB) {
	if from := s.span.From; !from.IsZero() {
		list = list.Where(column+" >= ?", stored(from))
	}
	if to := s.span.To; !to.IsZero() {
		list = list.Where(column+" < ?", stored(to))
	}
	s.lists = append(s.lists, latestFirst(having(list, "status = ?", s.status), column, id, s.after, s.most).Select("orders.id"))
}

// ofUser adds orders of a user's id, and of a username's account. What is no id is not asked for; see take.
func (s *search) ofUser(word string) {
	if !model.ValidUserID(word) {
		return
	}
	s.add(s.through(ordersOfUser).Where("user_id = ?", word))
	if model.ValidID(word) {
		s.add(s.through(ordersOfUser).Where("user_id = (SELECT id FROM accounts WHERE username_key = ?)", usernameKey(word)))
		s.add(s.db.Table("orders").Where("id = ?", word))
	}
}

// ofTitle adds the orders of vouchers whose title has all of the words, and of the one with such an id.
func (s *search) ofTitle(words []string) error {
	recent := s.db.Table(s.dialect.Through("vouchers",
		vouchersNewest)).Select("id, title, created_at").Order("created_at DESC, id DESC").Limit(maxTitles)
	found := titled(s.db.Table("(?) AS recent", recent), words)
	var vouchers []string
	if err := found.Order("created_at DESC, id DESC").Limit(maxTitled).Pluck("id", &vouchers).Error; err != nil {
		return err
	}
	if len(words) == 1 && model.ValidID(words[0]) && !slices.Contains(vouchers, words[0]) {
		vouchers = append(vouchers, words[0])
	}
	s.ofVouchers(vouchers...)
	return nil
}

func (s *search) ofVouchers(ids ...string) {
	if s.other() && len(ids) > 0 {
		s.addBy("at", "order_id", byInstant(s.db, s.dialect, s.span.Of).Where("voucher_id IN ?", ids))
		return
	}
	for _, id := range ids {
		s.add(s.through(ordersOfVoucher).Where("voucher_id = ?", id))
	}
}

package repository

import (
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
func (o *Orders) Find(ctx context.Context, ids []string) (found map[string]model.Order, err error) {
	err = o.db.Read(ctx, fmt.Sprintf("find %d orders", len(ids)), func(db *gorm.DB) (err error) {
		found, err = findOrders(db, ids)
		return err
	})
	return found, err
}

// Failed reads those of the orders that have failed.
func (o *Orders) Failed(ctx context.Context, ids []string) (found map[string]model.Order, err error) {
	err = o.db.Read(ctx, fmt.Sprintf("look for failed ones among %d orders", len(ids)), func(db *gorm.DB) (err error) {
		found, err = findOrders(db.Where("status = ?", model.OrderFailed).Session(&gorm.Session{}), ids)
		return err
	})
	return found, err
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
	var order model.Order
	var rows []historyRow
	err := o.db.Read(ctx, "get order "+id+" with its history", func(db *gorm.DB) (err error) {
		for range detailReadings {
			if order, err = take[model.Order](db, "order", id); err != nil {
				return err
			}
			if err := db.Where("order_id = ?", id).Order("id").Find(&rows).Error; err != nil {
				return fmt.Errorf("read its history: %w", err)
			}
			if len(rows) == 0 || rows[len(rows)-1].ToStatus == order.Status {
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return model.OrderDetail{}, err
	}
	return model.OrderDetail{Order: order, History: history(order, rows)}, nil
}

// List reads one page of orders, newest first. A cursor that is none of ours is VALIDATION.
func (o *Orders) List(ctx context.Context, q model.OrderQuery) (page model.OrderPage, err error) {
	page.Items, page.NextCursor, err = paged(ctx, o.db, "list orders", q.Cursor, q.Limit, atOrder,
		func(db *gorm.DB, after model.Cursor, most int) (*gorm.DB, error) { return o.listed(db, q, after, most) })
	return page, err
}

// Each calls yield for every order of the query, newest first, without its Limit. It reads page by page, so that a slow
// reader keeps no connection; an order made meanwhile is left out. An error of yield ends it and is returned.
func (o *Orders) Each(ctx context.Context, q model.OrderQuery, yield func(model.Order) error) error {
	after, err := model.ParseCursor(q.Cursor)
	if err != nil {
		return err
	}
	return pages(streamRows, func(last model.Order) (orders []model.Order, err error) {
		if last.ID != "" {
			after = atOrder(last)
		}
		err = o.db.Browse(ctx, "list orders", func(db *gorm.DB) error {
			found, err := o.listed(db, q, after, streamRows)
			if err != nil || found == nil {
				return err
			}
			return found.Find(&orders).Error
		})
		return orders, err
	}, each(yield))
}

func (o *Orders) listed(db *gorm.DB, q model.OrderQuery, after model.Cursor, most int) (*gorm.DB, error) {
	if q.UserID != "" && !model.ValidUserID(q.UserID) || q.VoucherID != "" && !model.ValidID(q.VoucherID) {
		return nil, nil //nolint:nilnil // there are no such orders; see take
	}
	if err := knownStatus(q.Status); err != nil {
		return nil, err
	}
	index := ordersNewest
	if q.VoucherID != "" {
		index = ordersOfVoucher
	}
	if q.UserID != "" {
		index = ordersOfUser
	}
	found := newestFirst(db.Table(behind(o.db.Dialect, "orders", index, after.ID != "")).Select("id"), after, most)
	found = having(having(having(found, "user_id = ?", q.UserID), "voucher_id = ?", q.VoucherID), "status = ?",
		q.Status)
	return wholeOrders(db, found), nil
}

// wholeOrders reads orders newest first. Their index gives ids alone: read backwards for rows, it has each row read.
func wholeOrders(db, found *gorm.DB) *gorm.DB {
	return db.Joins("JOIN (?) AS found ON found.id = orders.id", found).Order("orders.created_at DESC, orders.id DESC")
}

func knownStatus(status model.OrderStatus) error {
	if status != "" && !slices.Contains(model.OrderStatuses(), status) {
		return model.Invalid("query.status", "is not a status of orders")
	}
	return nil
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

// Search reads one page of all users' orders, or of those that the words find, newest first. VALIDATION: a cursor not
// ours, or a status of no order. An index finds each list: those of a status, and all as the newest of each status.
func (o *Orders) Search(ctx context.Context, q model.OrderSearch) (page model.OrderPage, err error) {
	if err := knownStatus(q.Status); err != nil {
		return page, err
	}
	page.Items, page.NextCursor, err = paged(ctx, o.db, "search orders", q.Cursor, q.Limit, atOrder,
		func(db *gorm.DB, after model.Cursor, most int) (*gorm.DB, error) {
			s := search{db: db, dialect: o.db.Dialect, status: q.Status, after: after, most: most}
			if err := s.find(q); err != nil || len(s.lists) == 0 {
				return nil, err
			}
			each := strings.Repeat(" UNION SELECT id FROM (?) AS list", len(s.lists))
			return wholeOrders(db, db.Raw(strings.TrimPrefix(each, " UNION "), s.lists...)).Limit(most), nil
		})
	return page, err
}

type search struct {
	db      *gorm.DB
	dialect sqldb.Dialect
	status  model.OrderStatus // empty: any
	after   model.Cursor
	most    int
	lists   []any // of ids
}

func (s *search) find(q model.OrderSearch) error {
	words := strings.Fields(q.Words)
	if len(words) == 0 && q.CodeHash == nil {
		for _, status := range model.OrderStatuses() {
			if s.status == "" || s.status == status {
				s.add(s.db.Table(s.dialect.Through("orders", ordersNewest)).Where("status = ?", status))
			}
		}
		return nil
	}
	if q.CodeHash != nil {
		s.add(s.db.Table("orders").Where("id = (SELECT order_id FROM order_codes WHERE code_hash = ?)", q.CodeHash))
	}
	if len(words) == 1 {
		s.ofUser(words[0])
	}
	if len(words) == 0 {
		return nil
	}
	return s.ofTitle(words[:min(len(words), maxWords)])
}

func (s *search) add(list *gorm.DB) {
	s.lists = append(s.lists, newestFirst(having(list, "status = ?", s.status), s.after, s.most).Select("id"))
}

// ofUser adds orders of a user's id, and of a username's account. What is no id is not asked for; see take.
func (s *search) ofUser(word string) {
	if !model.ValidUserID(word) {
		return
	}
	ofUser := behind(s.dialect, "orders", ordersOfUser, s.after.ID != "")
	s.add(s.db.Table(ofUser).Where("user_id = ?", word))
	if model.ValidID(word) {
		s.add(s.db.Table(ofUser).Where("user_id = (SELECT id FROM accounts WHERE username_key = ?)", usernameKey(word)))
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
	for _, id := range vouchers {
		s.add(s.db.Table(behind(s.dialect, "orders", ordersOfVoucher, s.after.ID != "")).Where("voucher_id = ?", id))
	}
	return nil
}

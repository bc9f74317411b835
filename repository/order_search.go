package repository

import (
	"context"
	"slices"
	"strings"

	"gorm.io/gorm"

	"seckill/model"
	"seckill/repository/sqldb"
)

const (
	// ordersNewest is the index of the newest orders of a status.
	ordersNewest = "orders_newest"
	// maxTitles is how many vouchers are searched for words of a title, the newest first:
	// some ten milliseconds.
	maxTitles = 10_000
	// maxTitled is of how many of those the orders are found, the newest first.
	maxTitled = 20
	// maxWords of a title count.
	maxWords = 8
)

// Search reads one page of all users' orders, newest first: all of them, or those that the
// words find. A cursor that is none of ours, and a status of no order, are VALIDATION.
//
// Every list is found by an index: those of a status by one of its own, and all of them as
// the newest of each status.
func (o *Orders) Search(ctx context.Context, q model.OrderSearch) (model.OrderPage, error) {
	after, err := model.ParseCursor(q.Cursor)
	if err != nil {
		return model.OrderPage{}, err
	}
	if q.Status != "" && !slices.Contains(model.OrderStatuses(), q.Status) {
		return model.OrderPage{}, model.Invalid("query.status", "is not a status of orders")
	}
	limit := model.PageSize(q.Limit)
	var orders []model.Order
	err = o.db.Browse(ctx, "search orders", func(db *gorm.DB) error {
		s := search{db: db, dialect: o.db.Dialect, status: q.Status, after: after, most: limit + 1}
		if err := s.find(q); err != nil || len(s.lists) == 0 {
			return err
		}
		return s.read(&orders)
	})
	if err != nil {
		return model.OrderPage{}, err
	}
	return orderPage(orders, limit), nil
}

// search is a page on its way: the newest of several lists.
type search struct {
	db      *gorm.DB
	dialect sqldb.Dialect
	status  model.OrderStatus // empty: any
	after   model.Cursor
	most    int
	lists   []any // of ids
}

// find makes the lists.
func (s *search) find(q model.OrderSearch) error {
	words := strings.Fields(q.Words)
	if len(words) == 0 && q.CodeHash == nil {
		statuses := model.OrderStatuses()
		if s.status != "" {
			statuses = []model.OrderStatus{s.status}
		}
		for _, status := range statuses {
			s.add(s.db.Table(s.dialect.Through("orders", ordersNewest)).Where("status = ?", status))
		}
		return nil
	}
	if q.CodeHash != nil {
		s.add(s.db.Table("orders").Where("id = (SELECT order_id FROM order_codes WHERE code_hash = ?)", q.CodeHash))
	}
	if len(words) == 0 {
		return nil
	}
	if len(words) == 1 {
		s.ofUser(words[0])
	}
	return s.ofTitle(words[:min(len(words), maxWords)])
}

// add adds the newest of a list.
func (s *search) add(list *gorm.DB) {
	if s.status != "" {
		list = list.Where("status = ?", s.status)
	}
	s.lists = append(s.lists, newestFirst(list, s.after, s.most).Select("id"))
}

// ofUser adds the orders of a user's id, and of the account of a username. What is no id
// is not asked for; see possible.
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
	recent := s.db.Table(s.dialect.Through("vouchers", vouchersNewest)).Select("id, title, created_at").Order("created_at DESC, id DESC").Limit(maxTitles)
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

// read reads the newest of all lists. Only those of the page are read as whole rows.
func (s *search) read(orders *[]model.Order) error {
	each := strings.Repeat(" UNION SELECT id FROM (?) AS list", len(s.lists))
	found := s.db.Raw(strings.TrimPrefix(each, " UNION "), s.lists...)
	return s.db.Joins("JOIN (?) AS found ON found.id = orders.id", found).
		Order("orders.created_at DESC, orders.id DESC").Limit(s.most).Find(orders).Error
}

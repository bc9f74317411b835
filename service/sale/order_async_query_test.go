package sale

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

func TestStatusOfAnOrder(t *testing.T) {
	t.Parallel()
	row := model.Order{ID: "row.v1", UserID: "alice", Status: model.OrderPaid}
	away := errors.New("connection refused")
	for name, tt := range map[string]struct {
		prepare func(s hotShop)
		id      string // empty: that of alice's order, which is processing
		user    string
		want    model.OrderStatus
		code    model.Code
	}{
		"processing":                   {user: "alice", want: model.OrderProcessing},
		"processing, somebody else's":  {user: "bob", code: model.CodeNotFound},
		"persisted":                    {id: "row.v1", user: "alice", want: model.OrderPaid},
		"persisted, somebody else's":   {id: "row.v1", user: "bob", code: model.CodeNotFound},
		"nowhere":                      {id: "no.v1", user: "alice", code: model.CodeNotFound},
		"an id that cannot exist":      {id: "no", user: "alice", code: model.CodeNotFound},
		"of a voucher that is nowhere": {id: "no.v2", user: "alice", code: model.CodeNotFound},
		"persisted, copy closed": {
			prepare: func(s hotShop) { s.sale.Set("state", model.CopyClosed) },
			id:      "row.v1", user: "alice", want: model.OrderPaid,
		},
		"persisted, Redis away": {prepare: func(s hotShop) { s.hot.Down = away }, id: "row.v1", user: "alice", want: model.OrderPaid},
		"nowhere, copy closed": {
			prepare: func(s hotShop) { s.sale.Set("state", model.CopyClosed) },
			id:      "no.v1", user: "alice", code: model.CodeUnavailable,
		},
		"nowhere, Redis away": {prepare: func(s hotShop) { s.hot.Down = away }, id: "no.v1", user: "alice", code: model.CodeUnavailable},
		"nowhere, of a draw": {prepare: func(s hotShop) {
			s.sale.Set("state", model.CopyClosed)
			s.table.Change(func(v *model.Voucher) { v.Allocation = model.ByDraw })
		}, id: "no.v1", user: "alice", code: model.CodeNotFound},
		"nowhere, long after the sale": {prepare: func(s hotShop) {
			s.sale.Set("state", model.CopyClosed)
			s.table.Change(func(v *model.Voucher) { v.EndAt = time.Now().Add(-2 * time.Hour) })
		}, id: "no.v1", user: "alice", code: model.CodeNotFound},
		"nowhere, long after the sale, with a backlog": {prepare: func(s hotShop) {
			s.sale.Set("state", model.CopyClosed)
			s.table.Change(func(v *model.Voucher) { v.EndAt = time.Now().Add(-2 * time.Hour) })
			s.line.with(func() { s.line.backlog.Messages = 1 })
			servicetest.Pass(time.Second)
		}, id: "no.v1", user: "alice", code: model.CodeUnavailable},
		"database away": {
			prepare: func(s hotShop) { s.rows.fail(model.Unavailable("gone", nil)) },
			id:      "row.v1", user: "alice", code: model.CodeUnavailable,
		},
	} {
		for _, wait := range []time.Duration{0, 100 * time.Millisecond} {
			inHotShops(t, fmt.Sprint(name, ", wait ", wait), func(t *testing.T, s hotShop) {
				id := s.buys(t, "alice").ID
				if tt.id != "" {
					id = tt.id
				}
				s.rows.put(row)
				if tt.prepare != nil {
					tt.prepare(s)
				}
				order, err := s.Get(t.Context(), tt.user, id, wait)
				check.That(t, tt.code == "" || (err != nil && model.CodeOf(err) == tt.code), "%+v, %v; want %s", order, err, tt.code)
				check.That(t, tt.code != "" || (err == nil && order.Status == tt.want && order.ID == id && order.UserID == tt.user), "%+v, %v; want %s", order, err, tt.want)
			})
		}
	}
}

func TestListShowsTheOrderThatIsProcessing(t *testing.T) {
	t.Parallel()
	closed := func(s hotShop) { s.sale.Set("state", model.CopyClosed) }
	live := func(s hotShop) { s.rows.put(model.Order{ID: "l.v1", UserID: "alice", Status: model.OrderUnpaid}) }
	ofVoucher := model.OrderQuery{UserID: "alice", VoucherID: "v1", Limit: 2}
	with := func(change func(q *model.OrderQuery)) model.OrderQuery {
		q := ofVoucher
		change(&q)
		return q
	}
	for name, tt := range map[string]struct {
		query   model.OrderQuery
		prepare func(s hotShop)
		want    []model.OrderStatus
		more    bool
		code    model.Code
	}{
		"on top of the first page": {query: ofVoucher, want: []model.OrderStatus{model.OrderProcessing, model.OrderCanceled}},
		"alone on a page of one": {
			query: with(func(q *model.OrderQuery) { q.Limit = 1 }),
			want:  []model.OrderStatus{model.OrderProcessing}, more: true,
		},
		"by its status": {
			query: with(func(q *model.OrderQuery) { q.Status = model.OrderProcessing }),
			want:  []model.OrderStatus{model.OrderProcessing},
		},
		"not by another": {query: with(func(q *model.OrderQuery) { q.Status = model.OrderPaid })},
		"of everybody":   {query: with(func(q *model.OrderQuery) { q.UserID = "" })},
		"of everybody by its status": {
			query: model.OrderQuery{VoucherID: "v1", Status: model.OrderProcessing},
			want:  []model.OrderStatus{model.OrderProcessing},
		},
		"of everybody when it cannot be told": {
			query: model.OrderQuery{VoucherID: "v1", Status: model.OrderProcessing}, prepare: closed, code: model.CodeUnavailable,
		},
		"not of others":    {query: with(func(q *model.OrderQuery) { q.UserID = "bob" })},
		"of all vouchers":  {query: model.OrderQuery{UserID: "alice", Status: model.OrderProcessing}},
		"not on next page": {query: with(func(q *model.OrderQuery) { q.Cursor = "next" }), want: []model.OrderStatus{model.OrderCanceled, model.OrderCanceled}},
		"not twice": {query: ofVoucher, prepare: func(s hotShop) { // its row is there, and the copy not told yet
			row := s.sale.Pending()[s.sale.Marks()["alice"]].Order
			row.Status = model.OrderUnpaid
			s.rows.put(row)
		}, want: []model.OrderStatus{model.OrderUnpaid, model.OrderCanceled}},
		"when it cannot be told": {query: ofVoucher, prepare: closed, code: model.CodeUnavailable},
		"of a draw": {query: ofVoucher, prepare: func(s hotShop) {
			closed(s)
			s.table.Change(func(v *model.Voucher) { v.Allocation = model.ByDraw })
		}, want: []model.OrderStatus{model.OrderCanceled, model.OrderCanceled}},
		"when a live one says that there can be none": {
			query:   with(func(q *model.OrderQuery) { q.Limit = 9 }),
			prepare: func(s hotShop) { closed(s); live(s) },
			want:    []model.OrderStatus{model.OrderCanceled, model.OrderCanceled, model.OrderUnpaid},
		},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			for i := range 2 {
				s.rows.put(model.Order{
					ID: fmt.Sprint(i, ".v1"), UserID: "alice", Status: model.OrderCanceled, CreatedAt: time.Now().Add(-time.Hour),
				})
			}
			s.buys(t, "alice")
			if tt.prepare != nil {
				tt.prepare(s)
			}
			page, err := s.List(t.Context(), tt.query)
			if tt.code != "" {
				check.That(t, err != nil && model.CodeOf(err) == tt.code, "%+v, %v; want %s", page, err, tt.code)
				return
			}
			var got []model.OrderStatus
			for _, o := range page.Items {
				got = append(got, o.Status)
			}
			check.That(t, err == nil && fmt.Sprint(got) == fmt.Sprint(tt.want), "%v, %v; want %v", got, err, tt.want)
			check.That(t, !tt.more || page.NextCursor != "", "there is no next page")
		})
	}
}

func TestDetailOfAnOrderThatIsProcessing(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		placed := s.buys(t, "alice")
		detail, err := s.Detail(t.Context(), placed.ID)
		if err != nil || detail.Status != model.OrderProcessing || len(detail.History) != 1 ||
			detail.History[0].From != nil || detail.History[0].To != model.OrderProcessing {
			t.Errorf("%+v, %v", detail, err)
		}
		servicetest.WantCode(t, check.ErrorOf(s.Detail(t.Context(), "no.v1")), model.CodeNotFound)
		s.sale.Set("state", model.CopyClosed)
		servicetest.WantCode(t, check.ErrorOf(s.Detail(t.Context(), "no.v1")), model.CodeUnavailable)
	})
}

// empty has no orders.
type empty struct{ OrderStore }

func (empty) Get(context.Context, string) (model.Order, error) {
	return model.Order{}, model.NotFound("order")
}

func (empty) Detail(context.Context, string) (model.OrderDetail, error) {
	return model.OrderDetail{}, model.NotFound("order")
}

// An instance of another order mode than the database's sees no reservations:
// it must not deny an order that was promised.
func TestInstanceOfAnotherModeKnowsThatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	sells := func() error { return nil }
	switching := func() error { return model.Unavailable("another order mode", nil) }
	for name, want := range map[string]struct {
		selling Selling
		code    model.Code
	}{
		"its own":     {sells, model.CodeNotFound},
		"another one": {switching, model.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			orders := &Orders{seller: &syncSeller{deps: Deps{Store: empty{}, Selling: want.selling}}}
			_, got := orders.Get(t.Context(), "alice", "1.v", 0)
			_, detail := orders.Detail(t.Context(), "1.v")
			for _, err := range []error{got, detail} {
				servicetest.WantCode(t, err, want.code)
			}
		})
	}
}

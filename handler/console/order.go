package console

import (
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"seckill/handler/wire"
	"seckill/model"
)

// orderList is the search for orders, and one page of what it has found.
type orderList struct {
	Order, User, Voucher string
	Status               model.OrderStatus // empty: any
	Statuses             []model.OrderStatus
	Asked                bool // a user or a voucher is named
	Items                []model.Order
	First                bool
	Next, Export         string
}

// listOrders finds the orders of a user or of a voucher, or one order. There is no list of
// all of them, which no index would serve.
func (c *console) listOrders(w http.ResponseWriter, r *http.Request, v *visit) error {
	query := r.URL.Query()
	named := func(name string) string { return strings.TrimSpace(query.Get(name)) }
	list := orderList{
		Order: named("order"), User: named("user"), Voucher: named("voucher"), Status: model.OrderStatus(named("status")),
		First: query.Get("cursor") == "",
	}
	if list.Order != "" {
		http.Redirect(w, r, orderPath(list.Order), http.StatusSeeOther)
		return nil
	}
	if list.Asked = list.User != "" || list.Voucher != ""; list.Asked {
		if err := c.findOrders(r, &list); err != nil {
			return err
		}
	}
	return c.ordersPage(w, r, v, http.StatusOK, list)
}

func (c *console) ordersPage(w http.ResponseWriter, r *http.Request, v *visit, status int, list orderList) error {
	list.Statuses = model.OrderStatuses()
	return c.show(w, r, v, status, "orders", list)
}

// findOrders asks as the API does.
func (c *console) findOrders(r *http.Request, list *orderList) error {
	if list.Status != "" && !slices.Contains(model.OrderStatuses(), list.Status) {
		return model.Invalid("query.status", "is no status of an order")
	}
	if list.Voucher != "" {
		if _, err := c.Vouchers.Get(r.Context(), list.Voucher, true); err != nil {
			return err
		}
		list.Export = voucherPath(list.Voucher) + "/orders"
	}
	page, err := c.Orders.List(r.Context(), model.OrderQuery{
		UserID: list.User, VoucherID: list.Voucher, Status: list.Status, Cursor: r.URL.Query().Get("cursor"), Limit: pageSize,
	})
	list.Items, list.Next = page.Items, nextPage(r.URL, page.NextCursor)
	return err
}

func orderPath(id string) string { return Path + "/orders/" + url.PathEscape(id) }

// orderPage is the page of one order.
type orderPage struct {
	model.OrderDetail

	Title    string          // of the voucher; empty: it cannot be read now
	Payments []model.Payment // newest first
	Refunds  []model.Refund  // newest first
	Retry    bool            // one of the refunds can be tried again
	Refusal  string          // why an action was refused
}

// MoneyKept reports whether the provider refuses for good to give money of the order back.
func (p orderPage) MoneyKept() bool { return p.Reason == model.ReasonRefundFailed }

// historyLine is one move of an order.
type historyLine struct {
	model.OrderMove

	Was model.OrderStatus // empty: the order was made
}

// Moves are the history.
func (p orderPage) Moves() []historyLine {
	lines := make([]historyLine, len(p.History))
	for i, move := range p.History {
		lines[i].OrderMove = move
		if move.From != nil {
			lines[i].Was = *move.From
		}
	}
	return lines
}

func (c *console) showOrder(w http.ResponseWriter, r *http.Request, v *visit) error {
	return c.orderPage(w, r, v, http.StatusOK, orderPage{})
}

func (c *console) orderPage(w http.ResponseWriter, r *http.Request, v *visit, status int, page orderPage) error {
	var err error
	if page.OrderDetail, err = c.Orders.Detail(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	if voucher, err := c.Vouchers.Get(r.Context(), page.VoucherID, true); err == nil {
		page.Title = voucher.Title
	}
	if wire.Allow(v.claims.Level, wire.SeeCode) != nil {
		page.Code = ""
	}
	if page.Status == model.OrderProcessing { // the database knows nothing of it
		return c.show(w, r, v, status, "order", page)
	}
	if page.Payments, err = c.Payments.OfOrder(r.Context(), page.ID); err != nil {
		return err
	}
	refunds, err := c.Refunds.List(r.Context(), model.RefundQuery{OrderID: page.ID})
	if err != nil {
		return err
	}
	page.Refunds = refunds.Items
	// Of a paid order, the same call would give the money back that has paid it.
	page.Retry = page.Status != model.OrderPaid && slices.ContainsFunc(page.Refunds, func(refund model.Refund) bool {
		return refund.Status == model.RefundFailed
	})
	return c.show(w, r, v, status, "order", page)
}

// refusedOrder shows an order again with why an action was refused.
func (c *console) refusedOrder(w http.ResponseWriter, r *http.Request, v *visit, err error) error {
	code := model.CodeOf(err)
	if hasOwnPage(code) {
		return err
	}
	return c.orderPage(w, r, v, wire.KindOf(code).Status, orderPage{Refusal: v.language.Explain(err)})
}

// cancelOrder cancels an unpaid order in its buyer's place.
func (c *console) cancelOrder(w http.ResponseWriter, r *http.Request, v *visit) error {
	id := r.PathValue("id")
	if _, err := c.Orders.CancelFor(r.Context(), v.claims.Subject, id); err != nil {
		return c.refusedOrder(w, r, v, err)
	}
	return done(w, r, orderPath(id), "canceled")
}

func (c *console) refundOrder(w http.ResponseWriter, r *http.Request, v *visit) error {
	id := r.PathValue("id")
	if _, err := c.Refunds.Request(r.Context(), v.claims.Subject, id); err != nil {
		return c.refusedOrder(w, r, v, err)
	}
	return done(w, r, orderPath(id), "refunding")
}

// exportOrders streams a voucher's orders. An error before the first row is a page; a later
// one cuts the connection, so that half a file never looks whole.
func (c *console) exportOrders(format string) func(w http.ResponseWriter, r *http.Request, _ *visit) error {
	return func(w http.ResponseWriter, r *http.Request, _ *visit) error {
		query := model.OrderQuery{VoucherID: r.PathValue("id"), Status: model.OrderStatus(r.URL.Query().Get("status"))}
		if query.Status != "" && !slices.Contains(model.OrderStatuses(), query.Status) {
			return model.Invalid("query.status", "is no status of an order")
		}
		begun, err := wire.ExportOrders(w, r, query.VoucherID, format, func(row func(model.Order) error) error { //nolint:contextcheck // it comes with the request
			return c.Orders.Each(r.Context(), query, row)
		})
		if err != nil && begun {
			c.Log.WarnContext(r.Context(), "an export was cut off", slog.String("voucher_id", query.VoucherID), slog.Any("error", err))
			panic(http.ErrAbortHandler)
		}
		return err
	}
}

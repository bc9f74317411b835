package console

import (
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"seckill/handler/wire"
	"seckill/model"
)

// orderList is one page of orders: all, or those that a search and a status leave.
type orderList struct {
	Words, User, Voucher string
	Title                string            // of the voucher
	Status               model.OrderStatus // empty: any
	Statuses             []model.OrderStatus
	Items                []model.Order
	Titles               map[string]string // of the vouchers of the items, by id
	First                bool
	Next, Export         string
	Here                 url.Values // what is asked for, but the status and the page
}

// With is where the same search is with another status.
func (l orderList) With(status string) string {
	query := url.Values{}
	maps.Copy(query, l.Here)
	if status != "" {
		query.Set("status", status)
	}
	if len(query) == 0 {
		return Path + "/orders"
	}
	return Path + "/orders?" + query.Encode()
}

// listOrders shows the newest orders, or those that a search finds: by an order, a user, a code or words of a title.
// Links of other pages name a user or a voucher, all of whose orders are listed.
func (c *console) listOrders(w http.ResponseWriter, r *http.Request, v *visit) error {
	query := r.URL.Query()
	named := func(name string) string { return strings.TrimSpace(query.Get(name)) }
	list := orderList{
		Words: named("q"), User: named("user"), Voucher: named("voucher"), Status: model.OrderStatus(named("status")),
		Statuses: model.OrderStatuses(), First: query.Get("cursor") == "", Here: url.Values{},
	}
	if list.Status != "" && !slices.Contains(list.Statuses, list.Status) {
		return model.Invalid("query.status", "is no status of an order")
	}
	for name, value := range map[string]string{"q": list.Words, "user": list.User, "voucher": list.Voucher} {
		if value != "" {
			list.Here.Set(name, value)
		}
	}
	page, err := c.findOrders(r, &list)
	if err != nil {
		return err
	}
	if len(page.Items) == 1 && list.Words == page.Items[0].ID {
		http.Redirect(w, r, orderPath(list.Words), http.StatusSeeOther)
		return nil
	}
	list.Items, list.Next, list.Titles = page.Items, nextPage(r.URL, page.NextCursor), map[string]string{}
	for _, order := range page.Items {
		if _, known := list.Titles[order.VoucherID]; known {
			continue
		}
		if voucher, err := c.Vouchers.Get(r.Context(), order.VoucherID, true); err == nil { // an id must do
			list.Titles[order.VoucherID] = voucher.Title
		}
	}
	return c.show(w, r, v, http.StatusOK, "orders", list)
}

// findOrders asks as the API does.
func (c *console) findOrders(r *http.Request, list *orderList) (model.OrderPage, error) {
	cursor := r.URL.Query().Get("cursor")
	if list.User == "" && list.Voucher == "" {
		return c.Search.Find(r.Context(), model.OrderSearch{Words: list.Words, Status: list.Status, Cursor: cursor, Limit: pageSize})
	}
	if list.Voucher != "" {
		voucher, err := c.Vouchers.Get(r.Context(), list.Voucher, true)
		if err != nil {
			return model.OrderPage{}, err
		}
		list.Title, list.Export = voucher.Title, voucherPath(list.Voucher)+"/orders"
	}
	return c.Orders.List(r.Context(), model.OrderQuery{
		UserID: list.User, VoucherID: list.Voucher, Status: list.Status, Cursor: cursor, Limit: pageSize,
	})
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

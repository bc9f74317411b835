package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"

	"seckill/handler/wire"
	"seckill/model"
)

// orderList is one page of orders: all, or those that a search and a status leave.
type orderList struct {
	filter

	Words, User, Voucher string
	Title                string            // of the voucher
	Status               model.OrderStatus // empty: any
	Statuses             []model.OrderStatus
	Items                []model.Order
	Titles               map[string]string // of the vouchers of the items, by id
	Next                 string
}

// Export is where all orders of the list are as a file of a format.
func (l orderList) Export(format string) string {
	l.path += "." + format
	return l.With("status", l.Status)
}

// listOrders shows the newest orders, or those that a search finds: by an order, a user, a code or words of a title.
// Links of other pages name a user or a voucher, all of whose orders are listed.
func (c *console) listOrders(w http.ResponseWriter, r *http.Request, v *visit) error {
	list, err := c.askedOrders(r)
	if err != nil {
		return err
	}
	page, err := c.findOrders(r.Context(), list, r.URL.Query().Get("cursor"), pageSize)
	if err != nil {
		return err
	}
	if len(page.Items) == 1 && list.Words == page.Items[0].ID {
		http.Redirect(w, r, orderPath(list.Words), http.StatusSeeOther)
		return nil
	}
	list.Items, list.Next, list.Titles = page.Items, nextPage(r.URL, page.NextCursor), map[string]string{}
	for _, order := range page.Items {
		c.title(r.Context(), list.Titles, order.VoucherID)
	}
	return c.show(w, r, v, http.StatusOK, "orders", list)
}

// askedOrders is the list that a request asks for, without its orders.
func (c *console) askedOrders(r *http.Request) (orderList, error) {
	f := filterOf(r, Path+"/orders", "q", "user", "voucher")
	list := orderList{
		filter: f, Words: f.asked.Get("q"), User: f.asked.Get("user"), Voucher: f.asked.Get("voucher"),
		Status: model.OrderStatus(r.URL.Query().Get("status")), Statuses: model.OrderStatuses(),
	}
	if list.Status != "" && !slices.Contains(list.Statuses, list.Status) {
		return list, model.Invalid("query.status", "is no status of an order")
	}
	if list.Voucher == "" {
		return list, nil
	}
	voucher, err := c.Vouchers.Get(r.Context(), list.Voucher, true)
	list.Title = voucher.Title
	return list, err
}

// findOrders asks as the API does.
func (c *console) findOrders(ctx context.Context, list orderList, cursor string, limit int) (model.OrderPage, error) {
	if list.User == "" && list.Voucher == "" {
		return c.Search.Find(ctx, model.OrderSearch{Words: list.Words, Status: list.Status, Cursor: cursor, Limit: limit})
	}
	return c.Orders.List(ctx, model.OrderQuery{UserID: list.User, VoucherID: list.Voucher, Status: list.Status, Cursor: cursor, Limit: limit})
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

// exportPage is how many orders of an export are read at once: as many as a list may have.
const exportPage = 100

// exportOrders streams all orders of a list for people, in their language and time zone. An error before the first row
// is a page; a later one cuts the connection, so that half a file never looks whole.
func (c *console) exportOrders(format string) handle {
	return func(w http.ResponseWriter, r *http.Request, v *visit) error {
		list, err := c.askedOrders(r)
		if err != nil {
			return err
		}
		titles := map[string]string{}
		title := func(id string) string { return c.title(r.Context(), titles, id) } //nolint:contextcheck // it comes with the request
		people := &wire.People{Text: func(key string) string { return v.language.Text(key) }, Title: title, Zone: v.zone}
		begun, err := wire.ExportOrders(w, r, "orders", format, people, func(row func(model.Order) error) error { //nolint:contextcheck // it comes with the request
			return c.eachOrder(r.Context(), list, row)
		})
		if err != nil && begun {
			c.Log.WarnContext(r.Context(), "an export was cut off", slog.Any("error", err))
			panic(http.ErrAbortHandler)
		}
		return err
	}
}

// eachOrder calls row for each order of a list, page by page.
func (c *console) eachOrder(ctx context.Context, list orderList, row func(model.Order) error) error {
	for cursor := ""; ; {
		page, err := c.findOrders(ctx, list, cursor, exportPage)
		if err != nil {
			return err
		}
		for _, order := range page.Items {
			if err := row(order); err != nil {
				return err
			}
		}
		if cursor = page.NextCursor; cursor == "" {
			return nil
		}
	}
}

// title is that of a voucher, asked for once; its id while it cannot be read.
func (c *console) title(ctx context.Context, known map[string]string, id string) string {
	if _, asked := known[id]; !asked {
		known[id] = id
		if voucher, err := c.Vouchers.Get(ctx, id, true); err == nil {
			known[id] = voucher.Title
		}
	}
	return known[id]
}

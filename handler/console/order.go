package console

import (
	"encoding/csv"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

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

	Code    string // as it was typed
	Refusal string // why it was refused
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
		list.Export = voucherPath(list.Voucher) + "/orders.csv?status=" + url.QueryEscape(string(list.Status))
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

	Refusal string // why an action was refused
}

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
	return c.show(w, r, v, status, "order", page)
}

// refusedOrder shows an order again with why an action was refused.
func (c *console) refusedOrder(w http.ResponseWriter, r *http.Request, v *visit, err error) error {
	code := model.CodeOf(err)
	if code == model.CodeNotFound || code == model.CodeInternal {
		return err
	}
	return c.orderPage(w, r, v, statusOf(code), orderPage{Refusal: v.language.explain(err)})
}

// cancelOrder cancels an unpaid order in its buyer's name: the move is the buyer's alone,
// and so the history tells it. Who did it is in the server's log.
func (c *console) cancelOrder(w http.ResponseWriter, r *http.Request, v *visit) error {
	id := r.PathValue("id")
	order, err := c.Orders.Detail(r.Context(), id)
	if err != nil {
		return err
	}
	if _, err := c.Orders.Cancel(r.Context(), order.UserID, id); err != nil {
		return c.refusedOrder(w, r, v, err)
	}
	c.Log.InfoContext(r.Context(), "an administrator canceled an order",
		slog.String("order_id", id), slog.String("user_id", order.UserID), slog.String("by", v.claims.Subject))
	return done(w, r, orderPath(id), "canceled")
}

func (c *console) refundOrder(w http.ResponseWriter, r *http.Request, v *visit) error {
	id := r.PathValue("id")
	if _, err := c.Refunds.Request(r.Context(), v.claims.Subject, id); err != nil {
		return c.refusedOrder(w, r, v, err)
	}
	return done(w, r, orderPath(id), "refunding")
}

// redeem uses the code that a buyer shows, once.
func (c *console) redeem(w http.ResponseWriter, r *http.Request, v *visit) error {
	typed := r.PostForm.Get("code")
	order, err := c.Redemptions.Redeem(r.Context(), v.claims.Subject, typed)
	if err != nil {
		if model.CodeOf(err) == model.CodeInternal {
			return err
		}
		list := orderList{Code: typed, Refusal: v.language.explain(err), First: true}
		for _, message := range v.language.fields(err) {
			list.Refusal = message // the form has one field
		}
		return c.ordersPage(w, r, v, statusOf(model.CodeOf(err)), list)
	}
	return done(w, r, orderPath(order.ID), "redeemed")
}

const (
	// rowsPerFlush is how many rows of an export are sent at a time: some 100 kB.
	rowsPerFlush = 500
	// flushTimeout ends an export whose browser has stopped reading. It starts anew with every flush.
	flushTimeout = 30 * time.Second
)

// export is one file of orders (RFC 4180), as the API exports them.
type export struct {
	w    http.ResponseWriter
	csv  *csv.Writer
	name string
	rows int // the header too
}

// exportOrders streams a voucher's orders. An error before the first row is a page; a later
// one cuts the connection, so that half a file never looks whole.
func (c *console) exportOrders(w http.ResponseWriter, r *http.Request, _ *visit) error {
	query := model.OrderQuery{VoucherID: r.PathValue("id"), Status: model.OrderStatus(r.URL.Query().Get("status"))}
	if query.Status != "" && !slices.Contains(model.OrderStatuses(), query.Status) {
		return model.Invalid("query.status", "is no status of an order")
	}
	out := &export{w: w, csv: csv.NewWriter(w), name: "orders-" + query.VoucherID + ".csv"}
	out.csv.UseCRLF = true
	err := c.Orders.Each(r.Context(), query, out.row)
	if err != nil && out.rows == 0 {
		return err
	}
	if err == nil {
		err = out.finish()
	}
	if err != nil {
		c.Log.WarnContext(r.Context(), "an export was cut off", slog.String("voucher_id", query.VoucherID), slog.Any("error", err))
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (e *export) begin() error {
	if e.rows > 0 {
		return nil
	}
	e.rows++
	e.w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	e.w.Header().Set("Content-Disposition", `attachment; filename="`+e.name+`"`)
	return e.csv.Write([]string{
		"id", "voucher_id", "user_id", "status", "reason", "price", "currency", "created_at", "expires_at", "paid_at", "closed_at",
	})
}

func (e *export) row(o model.Order) error {
	if err := e.begin(); err != nil {
		return err
	}
	err := e.csv.Write([]string{
		cell(o.ID), cell(o.VoucherID), cell(o.UserID), cell(string(o.Status)), cell(o.Reason), strconv.FormatInt(o.Price, 10),
		cell(o.Currency), rfc(o.CreatedAt), instant(o.ExpiresAt), instant(o.PaidAt), instant(o.ClosedAt),
	})
	if e.rows++; err != nil || e.rows%rowsPerFlush != 0 {
		return err
	}
	return e.flush()
}

func (e *export) flush() error {
	stream := http.NewResponseController(e.w)
	_ = stream.SetWriteDeadline(time.Now().Add(flushTimeout)) // it fails as the write does
	e.csv.Flush()
	if err := e.csv.Error(); err != nil {
		return err
	}
	return stream.Flush()
}

func (e *export) finish() error {
	if err := e.begin(); err != nil {
		return err
	}
	return e.flush()
}

// cell guards a text against spreadsheets that take it for a formula (OWASP, "CSV
// Injection"): the ids of users come from other issuers and may begin with a minus.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r\n", rune(text[0])) {
		return "'" + text
	}
	return text
}

func instant(at *time.Time) string {
	if at == nil {
		return ""
	}
	return rfc(*at)
}

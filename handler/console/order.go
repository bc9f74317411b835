package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"seckill/handler/wire"
	"seckill/internal/budget"
	"seckill/model"
)

// orderList is one page of orders: all, or those that a search and a status leave.
type orderList struct {
	filter
	pager

	query  model.OrderQuery
	Title  string // of the voucher
	Items  []model.Order
	Titles map[string]string // of the vouchers of the items, by id
	Counts map[model.OrderStatus]int64
}

// Export is where all orders of the list are as a file of a format.
func (l orderList) Export(format string) string {
	l.path += "." + format
	return l.With("", "")
}

// listOrders shows the newest orders, those of a user or a voucher, or what an order, user, code or title's words find.
func (c *console) listOrders(w http.ResponseWriter, r *http.Request, v *visit) error {
	list, err := c.askedOrders(r, v)
	if err != nil {
		return err
	}
	page, err := c.findOrders(r, v, list.query)
	if err != nil {
		return err
	}
	if len(page.Items) == 1 && list.query.Span.Of == "" && list.query.Words == page.Items[0].ID {
		http.Redirect(w, r, orderPath(list.query.Words), http.StatusSeeOther)
		return nil
	}
	if v.claims.Level != model.LevelCashier { // who looks for a code, and needs no numbers
		if list.Counts, err = c.Search.Counts(r.Context(), list.query); err != nil {
			return err
		}
	}
	list.Items, list.pager, list.Titles = page.Items, turn(r.URL, page.NextCursor), map[string]string{}
	for _, order := range page.Items {
		c.title(r.Context(), list.Titles, order.VoucherID)
	}
	return c.show(w, r, v, http.StatusOK, "orders", list)
}

func (c *console) askedOrders(r *http.Request, v *visit) (orderList, error) {
	f := filterOf(r, Path+"/orders", "q", "user", "voucher", "of", "from", "to", "status")
	if !f.asked.Has("from") && !f.asked.Has("to") {
		f.asked.Del("of")
	}
	list := orderList{filter: f, query: model.OrderQuery{
		UserID: f.Get("user"), VoucherID: f.Get("voucher"), Words: f.Get("q"), Status: model.OrderStatus(f.Get("status")),
		Span: model.Span{Of: model.OrderInstant(f.Get("of"))},
	}}
	var err error
	span := &list.query.Span
	if !slices.Contains(append(model.OrderInstants(), ""), span.Of) {
		return list, model.Invalid("query.of", "is no instant of an order")
	}
	if span.From, span.To, err = f.days(v.zone); err == nil {
		*span, err = span.Checked()
	}
	if err != nil {
		return list, err
	}
	if list.query.Status != "" && !slices.Contains(model.OrderStatuses(), list.query.Status) {
		return list, model.Invalid("query.status", "is no status of an order")
	}
	if list.query.VoucherID == "" {
		return list, nil
	}
	voucher, err := c.Vouchers.Get(r.Context(), list.query.VoucherID, true)
	list.Title = voucher.Title
	return list, err
}

func (c *console) findOrders(r *http.Request, v *visit, query model.OrderQuery) (model.OrderPage, error) {
	query.Cursor, query.Limit = r.URL.Query().Get("cursor"), pageSize
	if query.UserID == "" && query.VoucherID == "" {
		query.Till = v.till()
		return c.Search.Find(r.Context(), query)
	}
	return c.ListOrders(r.Context(), query)
}

func orderPath(id string) string { return Path + "/orders/" + url.PathEscape(id) }

type orderPage struct {
	model.OrderDetail

	Title    string          // of the voucher; empty: it cannot be read now
	Payments []model.Payment // newest first
	Refunds  []model.Refund  // newest first
	Retry    bool            // one of the refunds can be tried again
	Undo     bool            // the use can be undone
	Refusal  string          // why an action was refused
}

func (c *console) showOrder(w http.ResponseWriter, r *http.Request, v *visit) error {
	return c.orderPage(w, r, v, http.StatusOK, orderPage{})
}

func (c *console) orderPage(w http.ResponseWriter, r *http.Request, v *visit, status int, page orderPage) error {
	var err error
	if page.OrderDetail, err = c.Order(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	if voucher, err := c.Vouchers.Get(r.Context(), page.VoucherID, true); err == nil {
		page.Title = voucher.Title
	}
	if wire.Allow(v.claims.Level, wire.SeeCode) != nil {
		page.Code = ""
	}
	page.Undo = mayUndo(page.OrderDetail, v)
	if page.Status == model.OrderProcessing { // the database knows nothing of it
		return c.show(w, r, v, status, "order", page)
	}
	if page.Payments, err = c.PaymentsOf(r.Context(), page.ID); err != nil {
		return err
	}
	refunds, err := c.ListRefunds(r.Context(), model.RefundQuery{OrderID: page.ID})
	if err != nil {
		return err
	}
	page.Refunds = refunds.Items
	// Of a paid or used order, the same call would give the money back that has paid it.
	page.Retry = page.Status != model.OrderPaid && page.Status != model.OrderRedeemed && slices.ContainsFunc(page.Refunds, func(refund model.Refund) bool {
		return refund.Status == model.RefundFailed
	})
	return c.show(w, r, v, status, "order", page)
}

func (c *console) refusedOrder(w http.ResponseWriter, r *http.Request, v *visit, err error) error {
	return c.orderPage(w, r, v, statusOf(err), orderPage{Refusal: explainField(v.language, err)})
}

// mayUndo reports whether who looks at an order may undo its use, as far as this instance's clock tells.
func mayUndo(o model.OrderDetail, v *visit) bool {
	if o.Status != model.OrderRedeemed || wire.Allow(v.claims.Level, "unredeem-order") != nil {
		return false
	}
	return v.claims.Level.Reaches(model.LevelOperator) || slices.ContainsFunc(o.Uses, func(use model.OrderUse) bool {
		return use.UndoneAt == nil && use.By == v.claims.Subject && time.Since(use.At) <= budget.Undo
	})
}

// undoUse undoes a use from the page of its order, or from the till, which then shows the order.
func (c *console) undoUse(w http.ResponseWriter, r *http.Request, v *visit) error {
	order, err := c.Redemptions.Unredeem(r.Context(), model.Undo{
		OrderID: r.PathValue("id"), By: v.claims.Subject, Reason: r.PostForm.Get("reason"),
		Anytime: v.claims.Level.Reaches(model.LevelOperator),
	})
	switch {
	case err == nil && r.PostForm.Get("from") == "till":
		return done(w, r, tillPath(order.ID), "unredeemed")
	case err == nil:
		return done(w, r, orderPath(order.ID), "unredeemed")
	case hasOwnPage(err):
		return err
	}
	return c.refusedOrder(w, r, v, err)
}

func (c *console) refundOrder(r *http.Request, by string) (leads string, err error) {
	id := r.PathValue("id")
	ask := model.RefundAsk{Used: r.PostForm.Get("used") == "on", Reason: strings.TrimSpace(r.PostForm.Get("reason"))}
	_, err = c.RefundOrder(r.Context(), by, id, ask)
	return orderPath(id), err
}

// moves is a button that does something to an order.
func moves[T any](do func(ctx context.Context, by, orderID string) (T, error)) func(*http.Request, string) (string, error) {
	return func(r *http.Request, by string) (leads string, err error) {
		id := r.PathValue("id")
		_, err = do(r.Context(), by, id)
		return orderPath(id), err
	}
}

func (c *console) payElsewhere(r *http.Request, by string) (leads string, err error) {
	paid := model.Elsewhere{Reference: r.PostForm.Get("reference"), Method: r.PostForm.Get("method")}
	return moves(func(ctx context.Context, by, orderID string) (model.Order, error) {
		return c.PaidElsewhere(ctx, by, orderID, paid)
	})(r, by)
}

// exportOrders streams a list for people. An error before the first row is a page; a later one cuts the connection.
func (c *console) exportOrders(format string) handle {
	return func(w http.ResponseWriter, r *http.Request, v *visit) error {
		list, err := c.askedOrders(r, v)
		if err != nil {
			return err
		}
		titles := map[string]string{}
		title := func(id string) string { return c.title(r.Context(), titles, id) } //nolint:contextcheck // it comes with the request
		people := &wire.People{Text: func(key string) string { return v.language.Text(key) }, Title: title, Zone: v.zone}
		begun, err := wire.ExportOrders(w, r, "orders", format, people, func(row func(model.BookedOrder) error) error { //nolint:contextcheck // it comes with the request
			for n, id := range append(r.URL.Query()["voucher"], "") {
				if list.query.VoucherID = id; n > 0 && id == "" || err != nil {
					break // none of several is left
				}
				err = c.Search.Each(r.Context(), list.query, row)
			}
			return err
		})
		if err != nil && begun {
			c.Log.WarnContext(r.Context(), "an export was cut off", slog.Any("error", err))
			panic(http.ErrAbortHandler)
		}
		return err
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

type redeemPage struct {
	Code           string     // as it was typed
	Refusal        string     // why it was refused
	UsedAt         *time.Time // of a code that was used before: when, and by whom
	UsedBy         string
	model.Validity        // of a code outside its time
	Place          string // as it was chosen

	Shown *shownCode // the order that was just redeemed, or looked up; nil: none
}

// shownCode is the order of a code, as a till wants to know it.
type shownCode struct {
	model.Order

	Title     string // of the voucher
	FaceValue int64
	Buyer     string
	UsedBy    string // empty: nobody has used it
	Undo      bool   // the use can be undone
}

// Verdict is what a till shows of a code: good (it was used just now), known (it can be used), or bad.
func (s shownCode) Verdict(did string) string {
	switch {
	case did == "redeemed" && s.Status == model.OrderRedeemed:
		return "good"
	case s.Status == model.OrderPaid && s.Refusal(time.Now()) == nil:
		return "known"
	}
	return "bad"
}

func tillPath(orderID string) string { return Path + "/redeem?order=" + url.QueryEscape(orderID) }

// redeemPage asks for a code. After one was used it says what, who and when: a reload uses nothing.
func (c *console) redeemPage(r *http.Request, v *visit) (any, error) {
	id, ctx := r.URL.Query().Get("order"), r.Context()
	if id == "" {
		return redeemPage{}, nil
	}
	detail, err := c.Order(ctx, id)
	if err != nil {
		return nil, err
	}
	voucher, err := c.Vouchers.Get(ctx, detail.VoucherID, true)
	if err != nil {
		return nil, err
	}
	shown := shownCode{
		Order: detail.Order, Title: voucher.Title, FaceValue: voucher.FaceValue,
		Buyer: v.by(detail.UserID), Undo: mayUndo(detail, v),
	}
	for _, use := range detail.Uses {
		if use.UndoneAt == nil {
			shown.UsedBy = v.by(use.By)
		}
	}
	return redeemPage{Shown: &shown}, nil
}

// TillPlaces are those that an administrator chooses from at the till: with one there is no choice.
func (f frame) TillPlaces() model.Groups {
	if len(f.visit.claims.Groups) < 2 {
		return nil
	}
	return f.visit.claims.Groups
}

// redeem uses the code that a buyer shows, once; or it looks at its order alone.
func (c *console) redeem(w http.ResponseWriter, r *http.Request, v *visit) error {
	looks := r.PostForm.Get("how") == "look"
	page := redeemPage{Code: r.PostForm.Get("code"), Place: r.PostForm.Get("place")}
	var order model.Order
	var err error
	if looks {
		order, err = c.lookUp(r.Context(), v, page.Code)
	} else {
		till := model.Till{By: v.claims.Subject, Groups: v.claims.Groups, Place: page.Place, Everywhere: v.till() == nil}
		order, err = c.Redemptions.Redeem(r.Context(), till, page.Code)
	}
	leads := tillPath(order.ID)
	switch {
	case err == nil && looks:
		http.Redirect(w, r, leads, http.StatusSeeOther)
		return nil
	case err == nil:
		return done(w, r, leads, "redeemed")
	case model.CodeOf(err) == model.CodeInternal:
		return err
	}
	page.Refusal = explainField(v.language, err)
	if refused, ok := errors.AsType[*model.Error](err); ok {
		page.Validity = refused.Validity
		if !refused.RedeemedAt.IsZero() {
			page.UsedAt, page.UsedBy = &refused.RedeemedAt, refused.RedeemedBy
		}
	}
	return c.show(w, r, v, statusOf(err), "redeem", page)
}

// till is who may use codes of some groups alone; nil: everywhere.
func (v *visit) till() *model.Till {
	if v.claims.Level.Reaches(model.LevelOperator) {
		return nil
	}
	return &model.Till{By: v.claims.Subject, Groups: v.claims.Groups}
}

func (c *console) lookUp(ctx context.Context, v *visit, code string) (order model.Order, err error) {
	hash, err := c.Codes.Hash(code)
	if err != nil {
		return order, err
	}
	found, err := c.Search.Find(ctx, model.OrderQuery{CodeHash: string(hash), Till: v.till()})
	if err == nil && len(found.Items) == 0 {
		err = model.NotFound("code")
	}
	if err != nil {
		return order, err
	}
	return found.Items[0], nil
}

// name is the username of an account, or the id of a user who has none.
func (c *console) name(ctx context.Context, userID string) string {
	if account, err := c.AccountByID(ctx, userID); err == nil {
		return account.Username
	}
	return userID
}

type refundList struct {
	Status   model.RefundStatus // empty: any
	Statuses []model.RefundStatus
	Items    []model.Refund

	pager
}

// listRefunds begins with those that an administrator has to look after: the provider has refused them for good.
func (c *console) listRefunds(r *http.Request, v *visit) (any, error) {
	query := r.URL.Query()
	list := refundList{Status: model.RefundStatus(query.Get("status")), Statuses: model.RefundStatuses()}
	if !query.Has("status") {
		list.Status = model.RefundFailed
	}
	if list.Status != "" && !slices.Contains(list.Statuses, list.Status) {
		return nil, model.Invalid("query.status", "is no status of a refund")
	}
	asked := model.RefundQuery{Status: list.Status, Cursor: query.Get("cursor"), Limit: pageSize}
	page, err := c.ListRefunds(r.Context(), asked)
	list.Items, list.pager = page.Items, turn(r.URL, page.NextCursor)
	return list, err
}

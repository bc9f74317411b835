package handler

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"seckill/handler/wire"
	"seckill/internal/budget"
	"seckill/model"
)

const tagOrders = "Orders"

type ordersInput struct {
	Paging
	Status    string `query:"status" enum:"processing,unpaid,paid,redeemed,canceled,expired,failed,refunded" doc:"Only orders that stand there."`
	VoucherID string `query:"voucher_id" doc:"Only orders of this voucher."`
}

type orderInput struct {
	InPath
	Wait string `query:"wait" example:"10s" doc:"Answer as soon as the order is not processing, at most after this long: a Go duration, 30s at the most."`
}

// Resolve implements huma.Resolver. It moves the deadline of the answer for a client that waits.
func (in *orderInput) Resolve(ctx huma.Context) []error {
	if wait, err := parseWait(in.Wait); err == nil && wait > 0 {
		extendWrite(humagin.Unwrap(ctx), wait+budget.Step)
	}
	return nil
}

// extendWrite moves the deadline of an answer. A connection without one, as in tests without a server, is left alone.
func extendWrite(c *gin.Context, by time.Duration) {
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(by))
}

func (a *api) orderRoutes() {
	purchase := route{
		id: "seckill", call: "POST /vouchers/{id}/seckill", tag: tagOrders, access: users, writer: purchaser,
		summary: "Buy one", headers: []string{"Location"}, status: http.StatusCreated, otherwise: http.StatusAccepted,
		description: "201 (order mode sync): committed in the database. 202 (order mode async): reserved and durably " +
			"queued; the order is processing and will be unpaid, or failed when Redis lost writes that it had " +
			"acknowledged. Of a voucher with allocation draw: 202 with my entry, committed in the database; the same again to a repeated call. Where several refusals apply, the first of: 401, 413, 415, " +
			"422, RATE_LIMITED, 404, NOT_ELIGIBLE, ENDED, PAUSED, NOT_STARTED, LOCK_BUSY, ALREADY_ORDERED, COOLING_DOWN, SOLD_OUT. After a " +
			"time-out or a 5xx repeat the call: it answers with the order, or with ALREADY_ORDERED and its order_id.",
		codes:    append(unbuyable(), model.CodeSoldOut, model.CodeLockBusy),
		response: map[string]any{"application/json": model.Order{}},
	}
	a.registerPlain(purchase, a.place)
	for _, status := range []int{purchase.status, purchase.otherwise} {
		a.huma.OpenAPI().Paths[purchase.path()].Post.Responses[strconv.Itoa(status)].Content["application/json"].Schema = a.placed()
	}
	registerBare(a, route{
		id: "cancel-order", call: "POST /orders/{id}/cancel", tag: tagOrders, access: users,
		summary: "Cancel my unpaid order",
		description: "The unit is on sale again. Canceling again changes nothing and answers the same. An order that is " +
			"still processing, or paid or closed otherwise, cannot be canceled: ILLEGAL_STATE.",
		codes: []model.Code{model.CodeIllegalState},
	}, a.options.Orders.Cancel)
	answer(a, route{
		id: "list-orders", call: "GET /orders", tag: tagOrders, access: users, large: true,
		summary:     "List my orders, newest first",
		description: "With voucher_id also an order that is still processing, which a list of all does not have yet.",
		codes:       []model.Code{model.CodeValidation},
	}, func(ctx context.Context, in *ordersInput) (model.OrderPage, error) {
		if in.VoucherID != "" && !model.ValidID(in.VoucherID) {
			return model.OrderPage{}, nil // no order can be of a voucher that cannot exist
		}
		page, err := a.options.Orders.List(ctx, model.OrderQuery{
			UserID: subject(ctx), VoucherID: in.VoucherID, Status: model.OrderStatus(in.Status), Cursor: in.Cursor,
			Limit: in.Limit,
		})
		for i := range page.Items {
			page.Items[i].PaidReference = "" // it is for administrators, here and below
		}
		return page, err
	})
	answer(a, route{
		id: "get-order", call: "GET /orders/{id}", tag: tagOrders, access: users, summary: "Get my order",
		description: "The orders of others are not found. One that is still processing is there " +
			"right after its 202. A user may wait for a few orders at once: RATE_LIMITED.",
		codes: []model.Code{model.CodeValidation},
	}, func(ctx context.Context, in *orderInput) (order model.Order, err error) {
		wait, err := parseWait(in.Wait)
		if err != nil {
			return order, err
		}
		order, err = a.options.Orders.Get(ctx, subject(ctx), in.ID, wait)
		order.PaidReference = ""
		return order, err
	})
}

// unbuyable is what refuses a purchase, or a place on the waitlist, whatever is left.
func unbuyable() []model.Code {
	return []model.Code{
		model.CodeNotEligible, model.CodeEnded, model.CodePaused, model.CodeNotStarted, model.CodeAlreadyOrdered,
		model.CodeCoolingDown,
	}
}

// placed is an order or an entry in one schema: generated clients read every success into the type of the first one.
func (a *api) placed() *huma.Schema {
	registry := a.huma.OpenAPI().Components.Schemas
	order, entry := registry.SchemaFromRef(a.schema(reflect.TypeFor[model.Order]()).Ref),
		registry.SchemaFromRef(a.schema(reflect.TypeFor[model.Entry]()).Ref)
	placed := &huma.Schema{
		Type: huma.TypeObject, Properties: maps.Clone(order.Properties), Required: slices.Clone(entry.Required),
		Description: "An Order, or with `leaf` and `nonce` an Entry of a voucher that is drawn.",
	}
	maps.Copy(placed.Properties, entry.Properties)
	placed.Properties["status"] = &huma.Schema{Type: huma.TypeString}
	placed.Required = slices.DeleteFunc(placed.Required,
		func(name string) bool { return !slices.Contains(order.Required, name) })
	registry.Map()["Placed"] = placed
	return &huma.Schema{Ref: "#/components/schemas/Placed"}
}

const placePath = basePath + "/vouchers/:id/seckill" // as Gin has it

// place is the hot path. The token, and the size and the type of the body, were checked before it runs.
func (a *api) place(c *gin.Context) {
	ctx := c.Request.Context()
	user := subject(ctx)
	if p := emptyBody(c.Request); p != nil {
		a.write(c, p)
		return
	}
	if wait := callOf(ctx).overLimit; wait > 0 {
		a.refuseAddress(c, a.options.ByAddress.Rate(), wait)
		return
	}
	if a.limitUser(c, user) {
		return
	}
	voucherID := c.Param("id")
	if !model.ValidID(voucherID) {
		a.abort(c, model.NotFound("voucher"))
		return
	}
	order, err := a.options.Orders.Place(ctx, user, voucherID, callOf(ctx).claims.Groups...)
	if err != nil {
		a.abort(c, err)
		return
	}
	if order.Entry != nil {
		c.Writer.Header()["Location"] = []string{basePath + "/vouchers/" + order.Entry.VoucherID + "/entry"}
		a.send(c, http.StatusAccepted, "application/json", *order.Entry)
		return
	}
	status := http.StatusCreated
	if order.Status == model.OrderProcessing {
		status = http.StatusAccepted
	}
	c.Writer.Header()["Location"] = []string{basePath + "/orders/" + order.ID}
	a.send(c, status, "application/json", order)
}

func (a *api) limitUser(c *gin.Context, userID string) (refused bool) {
	ctx := c.Request.Context()
	if wait := a.options.ByUser.Take(ctx, userID); wait > 0 {
		a.refuseRate(c, "user", a.options.ByUser.Rate(), wait, "Too many requests of this user.")
		return true
	}
	return false
}

// emptyBody refuses a body that is neither missing, null nor {}. Generated clients send null for an optional body.
func emptyBody(r *http.Request) *Problem {
	if r.ContentLength == 0 {
		return nil
	}
	body, _ := io.ReadAll(r.Body) // out of memory, where readBody has put it
	if len(body) == 0 || bytes.Equal(body, []byte("{}")) {
		return nil
	}
	document, err := parseJSON(body)
	if err != nil {
		return unreadable(err.Error())
	}
	if _, none := document.(nullValue); none {
		return nil
	}
	members, ok := document.(map[string]any)
	if !ok {
		return problemOf(model.Invalid("body", "expected object"))
	}
	if len(members) == 0 {
		return nil
	}
	refusal := &huma.ErrorModel{}
	for name := range members {
		refusal.Errors = append(refusal.Errors,
			&huma.ErrorDetail{Location: "body." + name, Message: "unexpected property"})
	}
	return invalid(refusal)
}

// BookInput is how administrators ask for orders. (huma does not look into embedded structs that are private.)
type BookInput struct {
	Paging
	Status string    `query:"status" enum:"processing,unpaid,paid,redeemed,canceled,expired,failed,refunded" doc:"Only orders that stand there."`
	Of     string    `query:"of" enum:"created,paid,redeemed,closed" doc:"Only orders that have this instant, the latest first; with from or to alone: created."`
	From   time.Time `query:"from" doc:"Only orders whose instant is then or later."`
	To     time.Time `query:"to" doc:"Only orders whose instant is earlier."`
	Format string    `query:"format" enum:"json,csv,xlsx" default:"json" doc:"csv (exact, for programs) and xlsx (for spreadsheets, which take ids in it for texts) have all of them, whatever cursor and limit say."`
}

type voucherOrdersInput struct {
	InPath
	BookInput
}

type searchInput struct {
	BookInput
	Q string `query:"q" maxLength:"200" doc:"The id of an order, a user or a voucher, a username, a code, or words of a voucher's title: of the 20 newest vouchers with all of them."`
}

func (a *api) adminOrderRoutes() {
	const export = " An export is streamed, however long it is; when it fails on the way, the connection is cut. Its " +
		"received is what the order's payments received, its returned what its refunds gave back, whenever that was."
	books := func(r route) route {
		r.tag, r.access, r.large, r.headers = tagAdmin, administrators, true, []string{"Content-Disposition"}
		r.codes = append(r.codes, model.CodeValidation)
		r.response = map[string]any{"application/json": model.OrderPage{}, wire.CSV: "", wire.XLSX: nil}
		return r
	}
	register(a, books(route{
		id: "search-orders", call: "GET /admin/orders",
		summary:     "List orders of all vouchers, newest first, search them, or export them",
		description: "An order that is still processing is found by its id alone, without from, to and of." + export,
	}), func(ctx context.Context, in *searchInput) (*huma.StreamResponse, error) {
		query := model.OrderQuery{Words: strings.TrimSpace(in.Q)}
		if till := tillOf(ctx, ""); !till.Everywhere {
			query.Till = &till
		}
		return a.books(ctx, &in.BookInput, query, a.options.Search)
	})
	register(a, books(route{
		id: "voucher-orders", call: "GET /admin/vouchers/{id}/orders",
		summary: "List a voucher's orders, newest first, or export them", description: "Of all buyers." + export,
	}), func(ctx context.Context, in *voucherOrdersInput) (*huma.StreamResponse, error) {
		return a.books(ctx, &in.BookInput, model.OrderQuery{VoucherID: in.ID},
			func(ctx context.Context, q model.OrderQuery) (page model.OrderPage, err error) {
				if _, err := a.options.Vouchers.Get(ctx, in.ID, true); err != nil {
					return page, err
				}
				return a.options.Orders.List(ctx, q)
			})
	})
	answer(a, route{
		id: "admin-get-order", call: "GET /admin/orders/{id}", tag: tagAdmin, access: administrators,
		summary:     "Get anybody's order and what happened to it",
		description: "The history begins with its creation and names who moved it.",
	}, func(ctx context.Context, in *InPath) (model.OrderDetail, error) {
		detail, err := a.options.Orders.Detail(ctx, in.ID)
		if !seesCodes(ctx) {
			detail.Code = ""
		}
		return detail, err
	})
}

func seesCodes(ctx context.Context) bool {
	return wire.Allow(callOf(ctx).claims.Level, wire.SeeCode) == nil
}

func (a *api) books(
	ctx context.Context, in *BookInput, query model.OrderQuery,
	list func(context.Context, model.OrderQuery) (model.OrderPage, error),
) (*huma.StreamResponse, error) {
	var err error
	query.Status = model.OrderStatus(in.Status)
	query.Span, err = model.Span{Of: model.OrderInstant(in.Of), From: in.From, To: in.To}.Checked()
	if err != nil {
		return nil, err
	}
	if in.Format == "csv" || in.Format == "xlsx" {
		return &huma.StreamResponse{Body: func(ctx huma.Context) { //nolint:contextcheck // it comes with the request
			a.exportOrders(humagin.Unwrap(ctx), query, in.Format)
		}}, nil
	}
	query.Cursor, query.Limit = in.Cursor, in.Limit
	page, err := list(ctx, query)
	if err != nil {
		return nil, err
	}
	if !seesCodes(ctx) {
		for i := range page.Items {
			page.Items[i].Code = ""
		}
	}
	shown := filled(page)
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		a.send(humagin.Unwrap(ctx), http.StatusOK, "application/json", shown)
	}}, nil
}

// exportOrders streams orders. A failure behind the first row cuts the connection: half a file never looks whole.
func (a *api) exportOrders(c *gin.Context, query model.OrderQuery, format string) {
	begun, err := wire.ExportOrders(c.Writer, c.Request, strings.TrimSuffix("orders-"+query.VoucherID, "-"), format, nil,
		func(row func(model.BookedOrder) error) error {
			return a.options.Export(c.Request.Context(), query, row)
		})
	switch {
	case err == nil:
	case !begun:
		a.abort(c, err)
	default:
		_ = a.fail(c.Request.Context(), fmt.Errorf("export orders: %w", err))
		panic(http.ErrAbortHandler)
	}
}

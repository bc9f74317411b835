package handler

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"seckill/internal/budget"
	"seckill/model"
)

const tagVouchers = "Vouchers"

type vouchersInput struct {
	Paging
	Phase string `query:"phase" enum:"upcoming,live,sold_out,ended,paused" doc:"Only vouchers in this phase."`
}

type cacheable[T any] struct {
	CacheControl string `header:"Cache-Control" doc:"max-age=1, or 10 of what is counted no more often; private where a caller with a token has an answer of its own."`
	Body         T
}

type voucherInput struct {
	InPath
	Unless
}

func (a *api) voucherRoutes() {
	register(a, route{
		id: "list-vouchers", call: "GET /vouchers", tag: tagVouchers, access: recognised, large: true,
		summary: "List vouchers, newest first",
		description: "Those that everybody may see: no drafts, and none that are archived. To a caller with a token each tells whether " +
			"the caller may buy it (eligible), and the phase that it has for the caller; the parameter phase selects by the phase for everybody.",
		codes: []model.Code{model.CodeValidation, model.CodeUnavailable},
	}, func(ctx context.Context, in *vouchersInput) (*cacheable[model.VoucherPage], error) {
		page, err := a.options.Vouchers.List(ctx, in.query(false))
		for i, voucher := range page.Items {
			if subject(ctx) != "" {
				page.Items[i] = voucher.ShownTo(callOf(ctx).claims.Groups)
			}
		}
		return &cacheable[model.VoucherPage]{CacheControl: cachedFor(ctx), Body: filled(page)}, err
	})
	register(a, route{
		id: "get-voucher", call: "GET /vouchers/{id}", tag: tagVouchers, access: recognised, summary: "Get a voucher",
		description: "A draft or an archived voucher is not found, but by administrators. To a caller with a token it tells whether " +
			"the caller may buy it (eligible), and the phase that it has for the caller.",
		otherwise: http.StatusNotModified, headers: []string{"ETag"}, codes: []model.Code{model.CodeUnavailable},
	}, func(ctx context.Context, in *voucherInput) (*viewed, error) {
		voucher, err := a.options.Vouchers.Get(ctx, in.ID, isAdmin(ctx))
		return in.view(ctx, voucher), err
	})
	answer(a, route{
		id: "get-report", call: "GET /vouchers/{id}/report", tag: tagVouchers, access: recognised,
		summary: "Get what a sale was",
		description: "Of a voucher with public_report, after its end: numbers, without names. They are those of the administrators' report, " +
			"counted at most every 10 s and shared by all who ask. Before the end, and of other vouchers, it is not found.",
		codes: []model.Code{model.CodeUnavailable},
	}, func(ctx context.Context, in *InPath) (model.PublicReport, error) {
		replay, err := a.options.Replay(ctx, in.ID, false)
		return replay.PublicReport, err
	})
	register(a, route{
		id: "get-replay", call: "GET /vouchers/{id}/replay", tag: tagVouchers, access: recognised, large: true,
		summary: "Get a sale again, step by step",
		description: "As the report: of a voucher with public_report, after its end, without names. What was left and what attempts to buy heard, by " +
			"step; when each order was made; what came back, and who of the waitlist got it, by number. The same for everybody, so that caches may keep it.",
		codes: []model.Code{model.CodeUnavailable},
	}, func(ctx context.Context, in *InPath) (*cacheable[model.Replay], error) {
		replay, err := a.options.Replay(ctx, in.ID, false)
		return &cacheable[model.Replay]{CacheControl: fmt.Sprintf("public, max-age=%d", budget.Step/time.Second), Body: filled(replay)}, err
	})
}

func (in *vouchersInput) query(all bool) model.VoucherQuery {
	return model.VoucherQuery{Phase: model.Phase(in.Phase), All: all, Cursor: in.Cursor, Limit: in.Limit}
}

const tagAdmin = "Administration"

const adminVouchers = basePath + "/admin/vouchers"

// VoucherDraft is a voucher to be.
type VoucherDraft struct {
	Title         string      `json:"title" minLength:"1" maxLength:"200"`
	Description   string      `json:"description,omitempty" maxLength:"4000"`
	Price         int64       `json:"price" minimum:"0" maximum:"1000000000000" doc:"What a buyer pays, in minor units of the currency."`
	FaceValue     int64       `json:"face_value" minimum:"0" maximum:"1000000000000" doc:"What it is worth, in minor units of the currency."`
	Stock         int64       `json:"stock" minimum:"0" maximum:"1000000000000" doc:"How many there are."`
	BeginAt       string      `json:"begin_at" format:"date-time"`
	EndAt         string      `json:"end_at" format:"date-time" doc:"After begin_at; the first instant at which it is over."`
	State         string      `json:"state,omitempty" enum:"draft,published,paused,archived" default:"published"`
	Groups        []string    `json:"groups,omitempty" nullable:"false" maxItems:"20" uniqueItems:"true" minLength:"1" maxLength:"128" example:"[\"gold\"]" doc:"Whose token names one of these groups may buy; none: everybody."`
	Early         *EarlyStart `json:"early,omitempty" doc:"Who may begin before the others."`
	Cooldown      string      `json:"cooldown,omitempty" minLength:"1" default:"0s" example:"10m" doc:"How long a user waits before another order whose order was canceled or expired: a Go duration, 0s or from 1s to 24h. It doubles each time, up to 24h."`
	Allocation    string      `json:"allocation,omitempty" enum:"first_come,draw" default:"first_come" doc:"draw: purchases are entries, and the orders are drawn among them at end_at."`
	Waitlist      bool        `json:"waitlist,omitempty" doc:"Users may wait for a unit: one that comes back is an order of who waits first, and not on sale again."`
	ValidFrom     string      `json:"valid_from,omitempty" format:"date-time" doc:"From when on a code can be used; absent: at once."`
	ValidUntil    string      `json:"valid_until,omitempty" format:"date-time" doc:"Until when a code can be used; absent: for good."`
	ValidFor      string      `json:"valid_for,omitempty" minLength:"1" default:"0s" example:"720h" doc:"How long a code can be used from its payment on: a Go duration, 0s (for good) or from 1s to 87840h. The earlier of the two ends counts."`
	Withdrawal    string      `json:"withdrawal,omitempty" minLength:"1" default:"0s" example:"336h" doc:"How long from its payment on a buyer can give an unused order back: a Go duration, 0s (not at all) or from 1s to 87840h."`
	Redeemers     []string    `json:"redeemers,omitempty" nullable:"false" maxItems:"20" uniqueItems:"true" minLength:"1" maxLength:"128" example:"[\"north\"]" doc:"A cashier whose account is in none of these groups cannot redeem its codes; none: every cashier can."`
	PublicReport  bool        `json:"public_report,omitempty" doc:"After the end everybody may read what the sale was, without names."`
	Beacon        string      `json:"beacon,omitempty" maxLength:"200" example:"drand quicknet round 12345678" doc:"Of a draw: what will be drawn in public after the end. The draw waits for its value, and its order depends on it."`
	TimeZone      string      `json:"time_zone,omitempty" maxLength:"64" example:"Asia/Shanghai" doc:"In which people say its times, of the IANA database; absent: each in his own."`
	PaymentWindow string      `json:"payment_window,omitempty" minLength:"1" example:"15m" doc:"How long its orders stay unpaid before they expire: a Go duration, from 1s to 8784h. Without it, that of the server's settings."`
}

// EarlyStart names the groups that may buy first, and from when. An empty list of groups begins early for nobody.
type EarlyStart struct {
	Groups  []string `json:"groups" nullable:"false" maxItems:"20" uniqueItems:"true" minLength:"1" maxLength:"128" example:"[\"gold\"]"`
	BeginAt *string  `json:"begin_at,omitempty" format:"date-time" doc:"Before the voucher's begin_at."`
}

// VoucherChange changes the members that it has.
type VoucherChange struct {
	Title       *string     `json:"title,omitempty" minLength:"1" maxLength:"200"`
	Description *string     `json:"description,omitempty" maxLength:"4000"`
	Price       *int64      `json:"price,omitempty" minimum:"0" maximum:"1000000000000"`
	FaceValue   *int64      `json:"face_value,omitempty" minimum:"0" maximum:"1000000000000"`
	BeginAt     *string     `json:"begin_at,omitempty" format:"date-time"`
	EndAt       *string     `json:"end_at,omitempty" format:"date-time"`
	State       *string     `json:"state,omitempty" enum:"draft,published,paused,archived"`
	Groups      *[]string   `json:"groups,omitempty" nullable:"false" maxItems:"20" uniqueItems:"true" minLength:"1" maxLength:"128" doc:"Before the first order only, as early and waitlist; none: everybody may buy."`
	Early       *EarlyStart `json:"early,omitempty"`
	Cooldown    *string     `json:"cooldown,omitempty" minLength:"1" example:"10m" doc:"Before the first order only; 0s: nobody waits."`
	Allocation  *string     `json:"allocation,omitempty" enum:"first_come,draw"`
	Waitlist    *bool       `json:"waitlist,omitempty" nullable:"false"`

	ValidFrom    *string   `json:"valid_from,omitempty" doc:"RFC 3339. Once a unit is paid the times of a code become longer, not shorter. Empty: at once."`
	ValidUntil   *string   `json:"valid_until,omitempty" doc:"RFC 3339. Empty: for good."`
	ValidFor     *string   `json:"valid_for,omitempty" minLength:"1" example:"720h" doc:"0s: for good."`
	Withdrawal   *string   `json:"withdrawal,omitempty" minLength:"1" example:"336h" doc:"Longer only, once a unit is paid. 0s: not at all."`
	Redeemers    *[]string `json:"redeemers,omitempty" nullable:"false" maxItems:"20" uniqueItems:"true" minLength:"1" maxLength:"128" doc:"None: every cashier."`
	PublicReport *bool     `json:"public_report,omitempty" nullable:"false"`
	Beacon       *string   `json:"beacon,omitempty" maxLength:"200" doc:"Before the first entry only."`
	TimeZone     *string   `json:"time_zone,omitempty" maxLength:"64" example:"Asia/Shanghai" doc:"Empty: each in his own."`
}

// StockChange changes the total ever offered: by delta, or to stock.
type StockChange struct {
	Delta *int64 `json:"delta,omitempty" minimum:"-1000000000000" maximum:"1000000000000" doc:"How many more; negative: fewer."`
	Stock *int64 `json:"stock,omitempty" minimum:"0" maximum:"1000000000000" doc:"How many from now on, the sold ones included."`
}

// Rebuilding is the answer to a rebuild that has been asked for.
type Rebuilding struct {
	VoucherID string          `json:"voucher_id"`
	State     model.CopyState `json:"state" example:"rebuilding" doc:"The audit tells when it is open again."`
}

// slowAnswer is how long an audit or a report may take: a minute, and as long again as any other answer.
const slowAnswer = budget.Survey + 4*budget.Answer

type slowInput struct{ InPath }

// Resolve implements huma.Resolver: it moves the deadline of the answer.
func (*slowInput) Resolve(ctx huma.Context) []error {
	extendWrite(humagin.Unwrap(ctx), slowAnswer)
	return nil
}

type createVoucherInput struct {
	Idempotent
	Body VoucherDraft
}

type patchVoucherInput struct {
	InPath
	Guarded
	Body VoucherChange
}

type stockInput struct {
	InPath
	Idempotent
	Guarded
	Body StockChange
}

type created struct {
	Location string `header:"Location"`
	ETag     string `header:"ETag"`
	Body     model.Voucher
}

func (a *api) adminVoucherRoutes() {
	answer(a, route{
		id: "admin-list-vouchers", call: "GET /admin/vouchers", tag: tagAdmin, access: administrators, large: true,
		summary: "List all vouchers, newest first", description: "Drafts and archived ones, too.",
		codes: []model.Code{model.CodeValidation},
	}, func(ctx context.Context, in *vouchersInput) (model.VoucherPage, error) {
		return a.options.Vouchers.List(ctx, in.query(true))
	})
	one := func(id, suffix, summary, description string) route {
		return route{
			id: id, call: "GET /admin/vouchers/{id}" + suffix, tag: tagAdmin, access: administrators, summary: summary,
			description: description, large: suffix == "/report",
		}
	}
	register(a, one("admin-get-voucher", "", "Get a voucher in whatever state",
		"With the ETag that guards a change by If-Match."),
		func(ctx context.Context, in *InPath) (*tagged, error) {
			voucher, err := a.options.Vouchers.Get(ctx, in.ID, true)
			return tag(voucher), err
		})
	answer(a, one("voucher-stats", "/stats", "Count a voucher's units and orders",
		"Reserved are units of orders that are still processing."),
		func(ctx context.Context, in *InPath) (model.Stats, error) {
			return a.options.Vouchers.Stats(ctx, in.ID)
		})
	answer(a, one("voucher-audit", "/audit", "Check that a voucher's units and orders add up",
		"By the ids of the orders in the database, in Redis and in the queue, not only by their number. What is younger than 5 s is left out."),
		func(ctx context.Context, in *slowInput) (model.Audit, error) {
			return a.options.Vouchers.Audit(ctx, in.ID)
		})
	answer(a, one("voucher-report", "/report", "Report what a sale was",
		"The curve of its orders, when it was sold out, what attempts to buy heard, what was never paid, returned and sold again, the money, and the audit. "+
			"It is complete once the sale is over and its orders are decided. A million orders take a quarter of a minute."),
		func(ctx context.Context, in *slowInput) (model.Report, error) { return a.options.Report(ctx, in.ID) })
	register(a, route{
		id: "create-voucher", call: "POST /admin/vouchers", tag: tagAdmin, access: administrators,
		status:  http.StatusCreated,
		summary: "Create a voucher", description: "It is on sale at begin_at with nothing else to do.",
		headers: []string{"Location"}, codes: []model.Code{model.CodeConflict},
	}, a.createVoucher)
	register(a, route{
		id: "patch-voucher", call: "PATCH /admin/vouchers/{id}", tag: tagAdmin, access: administrators,
		summary: "Change a voucher", description: "Every instance obeys within a second.",
		codes: []model.Code{model.CodePreconditionFailed, model.CodeConflict},
	}, a.patchVoucher)
	register(a, route{
		id: "change-stock", call: "POST /admin/vouchers/{id}/stock", tag: tagAdmin, access: administrators,
		summary: "Change a voucher's stock", description: "Safe during the sale. Exactly one of delta and stock.",
		codes: []model.Code{model.CodePreconditionFailed, model.CodeConflict},
	}, a.changeStock)
	registerBare(a, route{
		id: "rebuild-voucher", call: "POST /admin/vouchers/{id}/rebuild", tag: tagAdmin, access: administrators,
		status: http.StatusAccepted, summary: "Rebuild a voucher's hot copy",
		description: "Order mode async: the copy in Redis is made anew from the database and the queue, while the sale " +
			"answers 503. In sync there is no copy: CONFLICT.",
		codes: []model.Code{model.CodeConflict},
	}, func(ctx context.Context, userID, id string) (Rebuilding, error) {
		return Rebuilding{VoucherID: id, State: model.CopyRebuilding}, a.options.Vouchers.Rebuild(ctx, id, userID)
	})
}

func (a *api) createVoucher(ctx context.Context, in *createVoucherInput) (*created, error) {
	draft, err := in.Body.parse()
	if err != nil {
		return nil, err
	}
	once, err := in.once(ctx, http.MethodPost, adminVouchers, "", draft)
	if err != nil {
		return nil, err
	}
	voucher, err := a.options.Vouchers.Create(ctx, draft, subject(ctx), once)
	return &created{Location: adminVouchers + "/" + voucher.ID, ETag: tag(voucher).ETag, Body: voucher}, err
}

func (a *api) patchVoucher(ctx context.Context, in *patchVoucherInput) (*tagged, error) {
	patch, err := in.Body.parse()
	if err != nil {
		return nil, err
	}
	patch.IfMatch, patch.By = in.tags(), subject(ctx)
	voucher, err := a.options.Vouchers.Patch(ctx, in.ID, patch)
	return tag(voucher), err
}

func (a *api) changeStock(ctx context.Context, in *stockInput) (*tagged, error) {
	change := model.StockChange{Delta: in.Body.Delta, Stock: in.Body.Stock, IfMatch: in.tags(), By: subject(ctx)}
	once, err := in.once(ctx, http.MethodPost, adminVouchers+"/{id}/stock", in.ID, change)
	if err != nil {
		return nil, err
	}
	voucher, err := a.options.Vouchers.ChangeStock(ctx, in.ID, change, once)
	return tag(voucher), err
}

// parse is what the draft says of a voucher. Its error names every field that is wrong.
func (d VoucherDraft) parse() (model.VoucherFields, error) {
	patch, err := VoucherChange{
		Title: &d.Title, Description: &d.Description, Price: &d.Price, FaceValue: &d.FaceValue, BeginAt: &d.BeginAt,
		EndAt: &d.EndAt, State: given(d.State), Groups: &d.Groups, Early: d.Early, Cooldown: given(d.Cooldown),
		Allocation: given(d.Allocation),
		Waitlist:   &d.Waitlist, PublicReport: &d.PublicReport, Redeemers: &d.Redeemers, Beacon: &d.Beacon, TimeZone: &d.TimeZone,
		ValidFrom: given(d.ValidFrom), ValidUntil: given(d.ValidUntil), ValidFor: given(d.ValidFor),
		Withdrawal: given(d.Withdrawal),
	}.parse()
	window, wrong := optional(given(d.PaymentWindow), func(text string) (model.Window, error) {
		window, err := time.ParseDuration(text)
		if err != nil || window == 0 { // what the model takes for none must not be given
			return 0, model.Invalid("body.payment_window", "must be a duration like 15m, and not zero")
		}
		return model.Window(window), nil
	})
	if err := model.JoinInvalid(err, wrong); err != nil {
		return model.VoucherFields{}, err
	}
	fields := model.VoucherFields{Stock: d.Stock}
	patch.Apply(&fields)
	if window != nil {
		fields.PaymentWindow = *window
	}
	return fields, nil
}

// parse makes the change a VoucherPatch. Its error names every field that is wrong.
func (c VoucherChange) parse() (model.VoucherPatch, error) {
	patch := model.VoucherPatch{
		Title: c.Title, Description: c.Description, Price: c.Price, FaceValue: c.FaceValue,
		State: (*model.VoucherState)(c.State), Groups: (*model.Groups)(c.Groups), Waitlist: c.Waitlist,
		Redeemers: (*model.Groups)(c.Redeemers), PublicReport: c.PublicReport, Beacon: c.Beacon, TimeZone: c.TimeZone,
	}
	var begin, end, early, cooldown, from, until, lasts, withdrawal error
	patch.ValidFrom, from = parseBound("body.valid_from", c.ValidFrom)
	patch.ValidUntil, until = parseBound("body.valid_until", c.ValidUntil)
	patch.ValidFor, lasts = parseLength("body.valid_for", c.ValidFor)
	patch.Withdrawal, withdrawal = parseLength("body.withdrawal", c.Withdrawal)
	patch.BeginAt, begin = parseTimeAt("body.begin_at", c.BeginAt)
	patch.EndAt, end = parseTimeAt("body.end_at", c.EndAt)
	if c.Early != nil {
		patch.Early = &model.Early{For: c.Early.Groups}
		if patch.Early.From, early = parseTimeAt("body.early.begin_at", c.Early.BeginAt); early != nil {
			patch.Early = nil
		}
	}
	patch.Cooldown, cooldown = parseLength("body.cooldown", c.Cooldown)
	if c.Allocation != nil {
		patch.Allocation = new(model.Allocation)
		_ = patch.Allocation.UnmarshalText([]byte(*c.Allocation)) // no other was let through
	}
	return patch, model.JoinInvalid(patch.Check(), begin, end, early, cooldown, from, until, lasts, withdrawal)
}

// given is nil for a text that is absent.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// optional reads a text; nil is what is absent or cannot be read.
func optional[T any](text *string, read func(string) (T, error)) (*T, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // absent is what it is
	}
	value, err := read(*text)
	if err != nil {
		return nil, err
	}
	return &value, nil
}

func parseLength(location string, text *string) (*model.Window, error) {
	return optional(text, func(text string) (model.Window, error) {
		length, err := time.ParseDuration(text)
		if err != nil {
			return 0, model.Invalid(location, "must be a duration like 15m")
		}
		return model.Window(length), nil
	})
}

// parseBound reads an instant that can be taken away again, by an empty text.
func parseBound(location string, text *string) (**time.Time, error) {
	return optional(text, func(text string) (*time.Time, error) { return parseTimeAt(location, given(text)) })
}

func parseTimeAt(location string, text *string) (*time.Time, error) {
	return optional(text, func(text string) (time.Time, error) { return parseTime(location, text) })
}

func (a *api) waitlistRoutes() {
	registerEither(a, route{
		id: "join-waitlist", call: "POST /vouchers/{id}/waitlist", tag: tagOrders, access: users,
		summary: "Wait for a unit", status: http.StatusCreated, otherwise: http.StatusOK,
		description: "Of a sold-out voucher with a waitlist. 201: a place at the end; 200: the place that you have. A unit that comes back or is " +
			"added is an unpaid order of who waits first, and not on sale again. CONFLICT while units are free, and for a voucher without a waitlist. " +
			"The window, the groups and the cool-down of the voucher refuse as they refuse a purchase.",
		codes: append(unbuyable(), model.CodeConflict),
	}, func(ctx context.Context, userID, id string) (place model.WaitlistPlace, created bool, err error) {
		return a.options.Orders.Join(ctx, userID, id, callOf(ctx).claims.Groups...)
	})
	answer(a, route{
		id: "get-waitlist", call: "GET /vouchers/{id}/waitlist", tag: tagOrders, access: users, summary: "Get my place",
		description: "With order_id the place has become that order, whatever became of it since, and position is 0. The first 1000 positions are " +
			"counted; further behind a position also counts who has left, and is never more than how many wait.",
	}, func(ctx context.Context, in *InPath) (model.WaitlistPlace, error) {
		return a.options.Orders.Waits(ctx, subject(ctx), in.ID)
	})
	register(a, route{
		id: "leave-waitlist", call: "DELETE /vouchers/{id}/waitlist", tag: tagOrders, access: users,
		status: http.StatusNoContent, summary: "Give my place up",
		description: "A place that has become an order is none any more: ALREADY_ORDERED while that is live; cancel it.",
		codes:       []model.Code{model.CodeAlreadyOrdered},
	}, func(ctx context.Context, in *InPath) (*struct{}, error) {
		return nil, a.options.Orders.Leave(ctx, subject(ctx), in.ID)
	})
}

// leavesInput is the paging of leaves, which are short: a million are read in two hundred calls.
type leavesInput struct {
	InPath
	Cursor string `query:"cursor" maxLength:"18" pattern:"^[0-9]*$" doc:"next_cursor of the page before; empty: the first page."`
	Limit  int    `query:"limit" minimum:"1" maximum:"5000" default:"1000" doc:"The most leaves of a page."`
}

// BeaconValue is what was drawn in public.
type BeaconValue struct {
	Value string `json:"value" minLength:"1" maxLength:"200" doc:"As its source publishes it: the order depends on each character, but for blanks around it."`
}

func (a *api) drawRoutes() {
	answer(a, route{
		id: "enter-beacon", call: "POST /admin/vouchers/{id}/beacon", tag: tagAdmin, access: administrators,
		summary: "Enter the value for which a draw waits",
		description: "Once, after the end, when the root is published; the draw goes on at once. The same again changes nothing. CONFLICT: the draw names " +
			"no beacon, has another value, or is not closed yet.",
		codes: []model.Code{model.CodeConflict},
	}, func(ctx context.Context, in *sentAbout[BeaconValue]) (model.Draw, error) {
		return a.options.Draws.SetValue(ctx, in.ID, in.Body.Value, subject(ctx))
	})
	answer(a, route{
		id: "get-entry", call: "GET /vouchers/{id}/entry", tag: tagOrders, access: users,
		summary: "Get my entry in a draw",
		description: "entered: it is not drawn yet. won: order_id is my order, which wants to be paid. waiting: I get a unit that comes " +
			"back, in the order of position. lost: I wait no more.",
	}, func(ctx context.Context, in *InPath) (model.Entry, error) {
		return a.options.Draws.Entry(ctx, in.ID, subject(ctx))
	})
	answer(a, route{
		id: "get-draw", call: "GET /vouchers/{id}/draw", tag: tagVouchers, access: recognised,
		summary: "Get the proof of a draw",
		description: "The commitment is there from the beginning, root when nobody can enter any more, and secret when it is drawn. With the " +
			"list of leaves anybody can draw again: docs/draw.md, seckill draw verify.",
		codes: []model.Code{model.CodeUnavailable},
	}, func(ctx context.Context, in *InPath) (model.Draw, error) {
		return a.options.Draws.Proof(ctx, in.ID, isAdmin(ctx))
	})
	answer(a, route{
		id: "list-leaves", call: "GET /vouchers/{id}/draw/entries", tag: tagVouchers, access: recognised, large: true,
		summary:     "List the leaves of a draw, in the drawn order",
		description: "Each stands for one entry, whose owner alone knows which: the SHA-256 of the voucher, the entry's nonce and the user. CONFLICT until it is drawn.",
		codes:       []model.Code{model.CodeConflict, model.CodeValidation, model.CodeUnavailable},
	}, func(ctx context.Context, in *leavesInput) (model.DrawnLeaves, error) {
		return a.options.Draws.Leaves(ctx, in.ID, isAdmin(ctx), in.Cursor, in.Limit)
	})
}

// The headers of conditional requests (RFC 9110, 13.1).
const (
	ifMatch     = "If-Match"
	ifNoneMatch = "If-None-Match"
)

// tagged is a voucher for administrators. Its tag covers what they change, and not what moves by itself, because with
// If-Match it guards changes against each other and not against sales. So If-None-Match does not count there.
type tagged struct {
	ETag string `header:"ETag" doc:"Of what administrators change, and not of remaining, phase and server_time. Send it as If-Match with a change."`
	Body model.Voucher
}

func tag(v model.Voucher) *tagged { return &tagged{ETag: `"` + v.Tag() + `"`, Body: v} }

// viewed is a voucher for everybody. Its weak tag covers all but server_time: 304 means that nothing else changed.
type viewed struct {
	Status       int
	CacheControl string `header:"Cache-Control" doc:"max-age=1 on what everybody sees, and private on what a caller with a token does."`
	ETag         string `header:"ETag" doc:"Weak: of everything but server_time."`
	Body         model.Voucher
}

const forASecond = "max-age=1" // of what everybody sees: a crowd that waits for a sale asks the service once a second

// cachedFor is what caches may do with an answer: the client's own alone, if it is for a caller with a token.
func cachedFor(ctx context.Context) string {
	if subject(ctx) != "" {
		return "private, " + forASecond
	}
	return forASecond
}

// Unless is the input of a call whose answer a client may have already.
type Unless struct {
	IfNoneMatch string `header:"If-None-Match" doc:"The ETag of an earlier answer: 304 when nothing but server_time has changed."`
}

// view is how a caller sees the voucher. What administrators see may be a draft, which no cache keeps.
func (in *Unless) view(ctx context.Context, v model.Voucher) *viewed {
	suffix := ""
	if subject(ctx) != "" {
		v = v.ShownTo(callOf(ctx).claims.Groups)
		suffix = fmt.Sprintf("-%t", *v.Eligible)
	}
	out := &viewed{
		Status: http.StatusOK, ETag: fmt.Sprintf(`W/"%s-%d-%s%s"`, v.Tag(), v.Remaining, v.Phase, suffix),
		Body: v,
	}
	if !isAdmin(ctx) {
		out.CacheControl = cachedFor(ctx)
	}
	same := func(given string) bool { return opaque(given) == opaque(out.ETag) }
	if in.IfNoneMatch == "*" || slices.ContainsFunc(strings.Split(in.IfNoneMatch, ","), same) {
		out.Status = http.StatusNotModified
	}
	return out
}

// Guarded is the input of a change that must not overwrite what its sender has not seen.
type Guarded struct {
	IfMatch string `header:"If-Match" doc:"The ETag of the voucher as you read it: PRECONDITION_FAILED when an administrator has changed it since. Without it the change is made in any case."`
}

// Resolve implements huma.Resolver. huma takes an empty header for none, and the first of several for all.
func (in *Guarded) Resolve(ctx huma.Context) []error {
	values := humagin.Unwrap(ctx).Request.Header.Values(ifMatch)
	in.IfMatch = strings.Join(values, ",")
	if len(values) == 0 || strings.TrimSpace(in.IfMatch) != "" {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: "header." + ifMatch, Message: "must be * or the ETag of a voucher"}}
}

// tags is nil when any voucher will do.
func (in *Guarded) tags() model.Tags {
	if in.IfMatch == "" || in.IfMatch == "*" {
		return nil
	}
	var tags model.Tags
	for given := range strings.SplitSeq(in.IfMatch, ",") {
		tags = append(tags, opaque(given))
	}
	return tags
}

// opaque is an entity tag without quotes and W/ (ours have no commas): nginx weakens the tags of answers it compresses.
func opaque(tag string) string {
	return strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
}

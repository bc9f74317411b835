package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"
)

// MaxAmount bounds stock (units) and money (minor units): above any sale, below what JavaScript or SQL would round.
const MaxAmount = 1_000_000_000_000

// Bounds of texts, in characters: a heading or a reason, and a page of terms.
const (
	maxLine        = 200
	maxDescription = 4000
)

// VoucherState is what administrators decide about a voucher.
type VoucherState string

// The states. Drafts and archived vouchers exist for administrators only.
const (
	VoucherDraft     VoucherState = "draft"
	VoucherPublished VoucherState = "published"
	VoucherPaused    VoucherState = "paused"
	VoucherArchived  VoucherState = "archived"
)

// VoucherStates lists every state.
func VoucherStates() []VoucherState {
	return []VoucherState{VoucherDraft, VoucherPublished, VoucherPaused, VoucherArchived}
}

// Phase is where a voucher stands in its sale at one instant.
type Phase string

// The phases.
const (
	PhaseUpcoming Phase = "upcoming"
	PhaseLive     Phase = "live"
	PhaseSoldOut  Phase = "sold_out"
	PhaseEnded    Phase = "ended"
	PhasePaused   Phase = "paused"
)

// Phases lists every phase.
func Phases() []Phase {
	return []Phase{PhaseUpcoming, PhaseLive, PhaseSoldOut, PhaseEnded, PhasePaused}
}

// VoucherFields are a voucher's row. All but Currency, Remaining and Waiting administrators decide: Create takes them,
// log and tag consist of them, a VoucherPatch changes most. docs/howto.md says what a new field needs; tests walk them.
type VoucherFields struct {
	Title       string       `json:"title"`
	Description string       `json:"description"`
	Price       int64        `json:"price"`      // minor units of Currency
	FaceValue   int64        `json:"face_value"` // minor units of Currency
	Currency    string       `json:"currency"`   // ISO 4217
	Stock       int64        `json:"stock"`      // units ever offered
	Remaining   int64        `json:"remaining"`  // units left to take
	BeginAt     time.Time    `json:"begin_at"`
	EndAt       time.Time    `json:"end_at"`
	State       VoucherState `json:"state"`

	// PaymentWindow is how long its orders stay unpaid; zero is the settings'. An order keeps its own.
	PaymentWindow Window `json:"payment_window,omitzero" example:"15m0s" doc:"How long its orders stay unpaid before they expire; absent: as long as the server's settings say."`

	// Groups, Early, Waitlist, Cooldown and Allocation are rules of a fair sale, fixed after the first order or entry.
	Groups   Groups `json:"groups,omitempty" gorm:"column:group_names" doc:"Whose token names one of these groups may buy; absent: everybody."`
	Early    Early  `json:"early,omitzero" gorm:"embedded;embeddedPrefix:early_" doc:"These groups may buy from an earlier instant on; absent: none."`
	Waitlist bool   `json:"waitlist,omitempty" doc:"Users may wait for a unit: one that comes back is an order of who waits first; absent: it is on sale again."`
	Waiting  int64  `json:"waiting,omitempty" doc:"How many users wait for a unit; nothing remains then."`

	Cooldown   Window     `json:"cooldown,omitzero" example:"10m0s" doc:"How long a user waits before another order whose order was canceled or expired; it doubles each time, up to 24h. Absent: not at all."`
	Beacon     string     `json:"beacon,omitempty" doc:"Of a draw: what will be drawn in public after the end. The draw waits for its value, and its order depends on it."`
	Allocation Allocation `json:"allocation" example:"first_come" doc:"Today first_come or draw. draw: a purchase during the window is an entry, and at end_at the orders are drawn among the entries."`

	// These matter once an order is paid. Times become longer afterwards, not shorter.
	ValidFrom    *time.Time `json:"valid_from,omitempty" doc:"From when on a code can be used; absent: at once."`
	ValidUntil   *time.Time `json:"valid_until,omitempty" doc:"Until when a code can be used; absent: for good."`
	ValidFor     Window     `json:"valid_for,omitzero" example:"720h0m0s" doc:"How long a code can be used, from its payment on. The earlier of the two ends counts."`
	Withdrawal   Window     `json:"withdrawal,omitzero" example:"336h0m0s" doc:"How long from its payment on a buyer can give an unused order back; absent: not at all."`
	Redeemers    Groups     `json:"redeemers,omitempty" doc:"Groups of cashiers who may redeem its codes; absent: all."`
	TimeZone     string     `json:"time_zone,omitempty" example:"Asia/Shanghai" doc:"In which people say its times, of the IANA database; absent: each in his own."`
	PublicReport bool       `json:"public_report,omitempty" doc:"After the end everybody may read what the sale was, without names."`
}

// VoucherPatch changes the fields of a voucher that are not nil. Each is named as in VoucherFields.
type VoucherPatch struct {
	Title       *string
	Description *string
	Price       *int64
	FaceValue   *int64
	BeginAt     *time.Time
	EndAt       *time.Time
	State       *VoucherState

	// The rules of a fair sale, which change before the first order only: CONFLICT.
	Groups     *Groups // none: everybody
	Early      *Early
	Waitlist   *bool
	Cooldown   *Window
	Allocation *Allocation
	Beacon     *string

	ValidFrom    **time.Time // of nil: no bound
	ValidUntil   **time.Time
	ValidFor     *Window
	Withdrawal   *Window
	Redeemers    *Groups
	PublicReport *bool
	TimeZone     *string

	IfMatch Tags
	By      string // the administrator
}

// Apply sets the fields that the patch has.
func (p VoucherPatch) Apply(to *VoucherFields) {
	patch, fields := reflect.ValueOf(p), reflect.ValueOf(to).Elem()
	for i, member := range reflect.VisibleFields(patch.Type()) {
		if value := patch.Field(i); value.Kind() == reflect.Pointer && !value.IsNil() {
			fields.FieldByName(member.Name).Set(value.Elem())
		}
	}
}

// Patch makes the fields of any voucher, those of them whose name in Go is chosen, what they are here.
func (f VoucherFields) Patch(chosen func(name string) bool) (p VoucherPatch) {
	fields, patch := reflect.ValueOf(&f).Elem(), reflect.ValueOf(&p).Elem()
	for i, member := range reflect.VisibleFields(patch.Type()) {
		if patch.Field(i).Kind() == reflect.Pointer && chosen(member.Name) {
			patch.Field(i).Set(fields.FieldByName(member.Name).Addr())
		}
	}
	return p
}

// Decided is what administrators decide about a voucher, as JSON: sales do not move it.
func (f VoucherFields) Decided() json.RawMessage {
	f.BeginAt, f.EndAt, f.Waiting = f.BeginAt.UTC(), f.EndAt.UTC(), 0
	for _, at := range []**time.Time{&f.Early.From, &f.ValidFrom, &f.ValidUntil} {
		if *at != nil {
			*at = new((*at).UTC())
		}
	}
	text, err := json.Marshal(struct {
		VoucherFields

		Remaining  *int64     `json:"remaining,omitempty"` // hides that of the fields
		Allocation Allocation `json:"allocation,omitempty"`
	}{VoucherFields: f, Allocation: f.Allocation})
	// No time that was let in is beyond JSON's range; one that is makes no JSON, and its write is refused.
	if err != nil {
		return fmt.Append(nil, err)
	}
	return text
}

// Check refuses what no voucher can be. Its error names every field that is wrong.
func (f VoucherFields) Check() error {
	return JoinInvalid(f.Patch(func(string) bool { return true }).Check(), checkAmount("stock", &f.Stock),
		checkLength("payment_window", &f.PaymentWindow, 366*24*time.Hour)) // who has not paid within a year will not
}

// Voucher is what is sold: a stock of units, offered from BeginAt until (excluding) EndAt.
type Voucher struct {
	ID string `json:"id"`
	VoucherFields
	VoucherView

	// Version grows with every change of the row, sold units included: reads of one version saw the same.
	Version  int64 `json:"-"`
	Revision int64 `json:"-"` // grows with what administrators and rebuilds change, not with sold units
	// WrittenOff are units taken off the stock because their used orders were paid back: nobody gets them.
	WrittenOff int64     `json:"-"`
	CreatedAt  time.Time `json:"-" gorm:"autoCreateTime:false"`
}

// VoucherView is a voucher at the instant at which it was read, on the clock that decides the window. It is not stored.
type VoucherView struct {
	Phase      Phase     `json:"phase" gorm:"-"`
	ServerTime time.Time `json:"server_time" gorm:"-"`
	// Reserved of the units that are not left belong to orders without a row yet, by its hot copy; others are sold.
	Reserved int64 `json:"-" gorm:"-"`
	Eligible *bool `json:"eligible,omitempty" gorm:"-" doc:"Whether the voucher is for the caller, of a call with a token."`
}

// Buyable reports whether the voucher exists for the people who buy.
func (v Voucher) Buyable() bool { return v.State == VoucherPublished || v.State == VoucherPaused }

// PhaseAt tells the phase at an instant. Its order is the order in which the contract lists the refusals of a purchase.
func (v Voucher) PhaseAt(now time.Time) Phase {
	switch {
	case !now.Before(v.EndAt):
		return PhaseEnded
	case v.State == VoucherPaused:
		return PhasePaused
	case now.Before(v.BeginAt):
		return PhaseUpcoming
	case v.Remaining <= 0 && v.Allocation != ByDraw: // nothing is taken by an entry
		return PhaseSoldOut
	default:
		return PhaseLive
	}
}

// At completes the voucher with the view of one instant.
func (v Voucher) At(now time.Time) Voucher {
	v.Phase = v.PhaseAt(now)
	v.ServerTime = now.UTC()
	return v
}

// Refusal tells why no user can buy at an instant, whatever is left of the stock: nil while the window is open.
func (v Voucher) Refusal(now time.Time) *Error {
	if !v.Buyable() {
		return NotFound("voucher")
	}
	switch v.PhaseAt(now) {
	case PhaseEnded:
		return &Error{Code: CodeEnded, Detail: "The sale has ended."}
	case PhasePaused:
		return &Error{Code: CodePaused, Detail: "The sale is paused."}
	case PhaseUpcoming:
		return &Error{
			Code:       CodeNotStarted,
			Detail:     "The sale has not started yet.",
			BeginAt:    v.BeginAt.UTC(),
			RetryAfter: v.BeginAt.Sub(now),
		}
	case PhaseLive, PhaseSoldOut:
	}
	return nil
}

const needsCopy = time.Hour // how long before and after a sale its hot copy must be there

// NeedsCopy reports whether the voucher's hot copy must be there, as of ServerTime. A draw has none.
func (v Voucher) NeedsCopy() bool {
	return v.Allocation != ByDraw && v.ServerTime.After(v.Opens().Add(-needsCopy)) &&
		v.ServerTime.Before(v.EndAt.Add(needsCopy))
}

// Check refuses what no voucher can become, whatever it is now. Its error names every field that is wrong.
func (p VoucherPatch) Check() error {
	var ends error
	if p.BeginAt != nil && p.EndAt != nil && !p.BeginAt.Before(*p.EndAt) {
		ends = Invalid("body.end_at", "must be after begin_at")
	}
	var zone error
	if p.TimeZone != nil && *p.TimeZone != "" {
		if _, zone = time.LoadLocation(*p.TimeZone); zone != nil || *p.TimeZone == "Local" {
			zone = Invalid("body.time_zone", "is no time zone")
		}
	}
	return JoinInvalid(zone, checkLine("title", p.Title), checkDescription(p.Description),
		checkAmount("price", p.Price), checkAmount("face_value", p.FaceValue), ends, p.checkRules(),
		checkLength("valid_for", p.ValidFor, forGood), checkLength("withdrawal", p.Withdrawal, forGood))
}

func checkLine(field string, text *string) error {
	location := "body." + field
	switch {
	case text == nil:
		return nil
	case isBlank(*text):
		return Invalid(location, "must not be blank")
	case utf8.RuneCountInString(*text) > maxLine:
		return Invalid(location, "The %s must have 1 to %d characters and not be blank.", field, maxLine)
	}
	return checkVisible(location, *text)
}

func checkVisible(location, text string) error {
	if r, at, found := invisible(text, ""); found {
		return Invalid(location, "must not have control or invisible characters (%U at position %d)", r, at)
	}
	return nil
}

func checkDescription(text *string) error {
	switch {
	case text == nil:
		return nil
	case utf8.RuneCountInString(*text) > maxDescription:
		return Invalid("body.description", "The description must have at most %d characters.", maxDescription)
	}
	if r, at, found := invisible(*text, "\t\n\r"); found {
		return Invalid("body.description",
			"must not have control or invisible characters other than tabs and line breaks (%U at position %d)", r, at)
	}
	return nil
}

func checkAmount(field string, amount *int64) error {
	if amount != nil && (*amount < 0 || *amount > MaxAmount) {
		return Invalid("body."+field, "%s must be from 0 to %d.", field, int64(MaxAmount))
	}
	return nil
}

// Window is how long something lasts, in JSON a Go duration such as "15m0s".
type Window time.Duration

func (w Window) String() string { return time.Duration(w).String() }

// MarshalText implements encoding.TextMarshaler.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Window) UnmarshalText(text []byte) error {
	window, err := time.ParseDuration(string(text))
	*w = Window(window)
	return err
}

const forGood = 87840 * time.Hour // ten years behind a payment

// checkLength bounds how long something lasts, if it does. Nobody does anything within a second.
func checkLength(field string, window *Window, most time.Duration) error {
	if window != nil && *window != 0 && (time.Duration(*window) < time.Second || time.Duration(*window) > most) {
		return Invalid("body."+field, "must be 0s, or from 1s to %dh", int64(most.Hours()))
	}
	return nil
}

// StockChange is a change by Delta or to an absolute Stock; exactly one of them is set.
type StockChange struct {
	Delta *int64
	Stock *int64

	IfMatch Tags   `json:"-"` // no part of what is asked: a repeated call has the same answer with and without it
	By      string `json:"-"` // the administrator; no part of what is asked either
}

// Check refuses a change that is none, and one that no stock allows.
func (c StockChange) Check() error {
	switch {
	case (c.Delta == nil) == (c.Stock == nil):
		return Invalid("body", "Give either delta or stock.")
	case c.Delta != nil && (*c.Delta < -MaxAmount || *c.Delta > MaxAmount):
		return Invalid("body.delta", "must be between -%d and %d", int64(MaxAmount), int64(MaxAmount))
	case c.Stock != nil && *c.Stock < 0:
		return Invalid("body.stock", "must not be negative")
	case c.Stock != nil && *c.Stock > MaxAmount:
		return Invalid("body.stock", "the stock would be above %d", int64(MaxAmount))
	}
	return nil
}

// VoucherQuery selects vouchers, newest first.
type VoucherQuery struct {
	Phase  Phase // empty: any
	OnSale bool  // those that are live or sold out, whichever they are
	All    bool  // drafts and archived ones too
	Cursor string
	Limit  int

	// Of a shelf alone. Words are all in the title, without regard to case; State is of those in no phase. By is title, price, remaining, taken, begin_at or end_at, with a minus the other way round; empty:
	// what is on sale, the soonest end first, then what begins soonest. From and To is a time in which a sale is on.
	Words, By string
	State     VoucherState
	From, To  time.Time
}

// Shelf is a page of vouchers, and how many there are of each phase, or of the state of those in none; of "", all.
type Shelf struct {
	VoucherPage

	Counts map[string]int64
}

// VoucherPage is one page of vouchers.
type VoucherPage Page[Voucher]

// StockIntent announces a smaller stock before the hot copy is lowered: should the process die, the copy is put right.
type StockIntent struct {
	VoucherID string
	Stock     int64     // what it is to become
	Revision  int64     // of the voucher when it was intended; at another one the intent is void
	CreatedAt time.Time `gorm:"autoCreateTime:false"`
}

const tagBytes = 12 // enough that two versions of one voucher never share a tag by chance

// Tag is made of all that administrators decide, so that a view with the stock of a lagging hot copy has another tag.
func (v Voucher) Tag() string {
	sum := sha256.Sum256(append([]byte(v.ID), v.Decided()...))
	return hex.EncodeToString(sum[:tagBytes])
}

// Tags is the precondition of a change: the voucher must have one of them. Nil asks for nothing.
type Tags []string

// Check is PRECONDITION_FAILED when the voucher, as it is before the change, has none of the tags.
func (t Tags) Check(v Voucher) error {
	if t == nil || slices.Contains(t, v.Tag()) {
		return nil
	}
	return &Error{
		Code:   CodePreconditionFailed,
		Detail: "The voucher was changed since you read it. Read it again, and decide again.",
	}
}

// Takings are what a voucher's orders cost, at one instant.
type Takings struct {
	ByStatus map[OrderStatus]Taking // a status that no order has is left out
	Adrift   int64                  // units taken from the stock minus live orders: 0, or the database does not add up
}

// Taking is what orders of one status cost together.
type Taking struct {
	Orders int64
	Amount int64 // in minor units
}

// Day is what has come since an instant.
type Day struct {
	Orders   int64 // that did not fail
	Received int64 // money, in minor units, as Returned
	Returned int64
}

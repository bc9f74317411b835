package model

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Bounds of groups: a voucher's or account's are written in a line, and identity providers' names fit.
const (
	maxGroups    = 20
	maxGroupName = 128 // characters
)

// Groups are names of groups of users, compared byte for byte. In the database they are a JSON list; none is NULL.
type Groups []string

// Scan implements sql.Scanner.
func (g *Groups) Scan(from any) error {
	*g = nil
	switch from := from.(type) {
	case nil:
		return nil
	case []byte:
		return json.Unmarshal(from, (*[]string)(g))
	case string:
		return json.Unmarshal([]byte(from), (*[]string)(g))
	default:
		return errors.New("groups are a text")
	}
}

// Value implements driver.Valuer.
func (g Groups) Value() (driver.Value, error) {
	if len(g) == 0 {
		return nil, nil //nolint:nilnil // NULL
	}
	text, err := json.Marshal([]string(g))
	return string(text), err
}

// GormDataType implements gorm's schema.GormDataTypeInterface, which asks it of a list.
func (Groups) GormDataType() string { return "text" }

// Any reports whether one of the groups is among those of a user.
func (g Groups) Any(of []string) bool {
	return slices.ContainsFunc(g, func(group string) bool { return slices.Contains(of, group) })
}

// Check refuses names that no group has, and too many of them.
func (g Groups) Check(location string) error {
	if len(g) > maxGroups {
		return Invalid(location, "must name at most %d groups", maxGroups)
	}
	for i, name := range g {
		switch {
		case isBlank(name):
			return Invalid(location, "must not name a blank group")
		case utf8.RuneCountInString(name) > maxGroupName:
			return Invalid(location, "must not name a group with more than %d characters", maxGroupName)
		case !utf8.ValidString(name):
			return Invalid(location, "must be UTF-8")
		case slices.Contains(g[:i], name):
			return Invalid(location, "must not name a group twice")
		}
		if err := checkVisible(location, name); err != nil {
			return err
		}
	}
	return nil
}

// Early lets some groups begin before everybody else; the zero value lets none.
type Early struct {
	For  Groups     `json:"groups" gorm:"column:group_names"`
	From *time.Time `json:"begin_at" gorm:"column:begin_at"`
}

// Includes reports whether a user of such groups may begin early.
func (e Early) Includes(groups []string) bool { return e.From != nil && e.For.Any(groups) }

func (e Early) same(other Early) bool {
	return slices.Equal(e.For, other.For) && (e.From == nil) == (other.From == nil) &&
		(e.From == nil || e.From.Equal(*other.From))
}

func (e Early) check() error {
	switch {
	case e.From == nil && len(e.For) == 0:
		return nil
	case len(e.For) == 0:
		return Invalid("body.early.groups", "must name who may begin early")
	case e.From == nil:
		return Invalid("body.early.begin_at", "is required")
	}
	return e.For.Check("body.early.groups")
}

// maxCooldown bounds a cool-down. It doubles each time, and nobody is kept away for longer than a day.
const maxCooldown = 24 * time.Hour

// CooldownUntil ends a user's wait for an unpaid order, after so many before, in a hot copy's whole ms; nil: no wait.
func CooldownUntil(cooldown Window, at time.Time, times int64) *time.Time {
	if cooldown <= 0 {
		return nil
	}
	wait := time.Duration(cooldown)
	for ; times > 0 && wait < maxCooldown; times-- {
		wait *= 2
	}
	return new(at.Add(min(wait, maxCooldown) + time.Millisecond - 1).UTC().Truncate(time.Millisecond))
}

// CoolingDown refuses, at an instant, a user whose last order of a voucher ended unpaid.
func CoolingDown(until, now time.Time) *Error {
	return &Error{
		Code: CodeCoolingDown, Detail: "Your last order for this voucher ended unpaid a short time ago.",
		RetryAt: until.UTC(), RetryAfter: until.Sub(now),
	}
}

// checkRules refuses rules that no voucher can have. Whether an early beginning is early, the voucher tells.
func (p VoucherPatch) checkRules() error {
	var groups, early, redeemers, beacon error
	if p.Groups != nil {
		groups = p.Groups.Check("body.groups")
	}
	if p.Redeemers != nil {
		redeemers = p.Redeemers.Check("body.redeemers")
	}
	if p.Beacon != nil && *p.Beacon != "" {
		beacon = checkLine("beacon", p.Beacon)
	}
	if p.Early != nil {
		early = p.Early.check()
	}
	if p.Early != nil && early == nil && p.BeginAt != nil {
		early = (&VoucherFields{BeginAt: *p.BeginAt, Early: *p.Early}).CheckRules()
	}
	return JoinInvalid(groups, early, checkLength("cooldown", p.Cooldown, maxCooldown), redeemers, beacon)
}

// MayBuy reports whether the voucher is for a user of such groups.
func (v *Voucher) MayBuy(groups []string) bool { return len(v.Groups) == 0 || v.Groups.Any(groups) }

// For is the voucher as it begins for a user of such groups. NOT_ELIGIBLE: it is not for them.
func (v *Voucher) For(groups []string) (*Voucher, *Error) {
	switch {
	case v.Buyable() && !v.MayBuy(groups):
		return nil, NotEligible()
	case v.Early.Includes(groups):
		return new(v.ForEarly()), nil
	default:
		return v, nil
	}
}

// RefusalTo is what a user of such groups, with such orders, hears who buys at an instant, as a purchase would; nil: OK.
func (v *Voucher) RefusalTo(groups []string, orders []Order, now time.Time) *Error {
	shown, refused := v.For(groups)
	if refused == nil {
		refused = shown.Refusal(now)
	}
	if refused != nil {
		return refused
	}
	if shown.PhaseAt(now) == PhaseSoldOut {
		refused = SoldOut()
	}
	for _, order := range orders {
		switch {
		case order.VoucherID != v.ID:
		case order.Live():
			return AlreadyOrdered(order)
		case order.CooldownUntil != nil && order.CooldownUntil.After(now):
			refused = CoolingDown(*order.CooldownUntil, now)
		}
	}
	return refused
}

// Opens is when the first users may buy.
func (v *Voucher) Opens() time.Time {
	if v.Early.From != nil {
		return *v.Early.From
	}
	return v.BeginAt
}

// ForEarly is the voucher as it is for those who may begin early.
func (v Voucher) ForEarly() Voucher {
	v.BeginAt = v.Opens()
	return v
}

// OnSale reports whether anybody may buy at an instant, whatever is left.
func (v Voucher) OnSale(now time.Time) bool { return v.ForEarly().Refusal(now) == nil }

// ShownTo is the voucher as a user of such groups sees it: whether it is for them, and its phase for them.
func (v Voucher) ShownTo(groups []string) Voucher {
	eligible := v.MayBuy(groups)
	v.Eligible = &eligible
	if v.Early.Includes(groups) {
		v.Phase = v.ForEarly().PhaseAt(v.ServerTime)
	}
	return v
}

// CheckRules refuses rules that do not fit the rest of the voucher.
func (f *VoucherFields) CheckRules() error {
	if f.Early.From != nil && !f.Early.From.Before(f.BeginAt) {
		return Invalid("body.early.begin_at", "must be before begin_at")
	}
	if f.ValidFrom != nil && f.ValidUntil != nil && !f.ValidFrom.Before(*f.ValidUntil) {
		return Invalid("body.valid_until", "must be after valid_from")
	}
	if f.Beacon != "" && f.Allocation != ByDraw {
		return Invalid("body.beacon", "needs the allocation draw")
	}
	return nil
}

// SameRules reports whether two vouchers have the same rules of a fair sale, fixed after the first order or entry.
func (f *VoucherFields) SameRules(other *VoucherFields) bool {
	return slices.Equal(f.Groups, other.Groups) && f.Early.same(other.Early) && f.Waitlist == other.Waitlist &&
		f.Cooldown == other.Cooldown && f.Allocation == other.Allocation && f.Beacon == other.Beacon
}

// NotEligible refuses a user whom a voucher is not for.
func NotEligible() *Error {
	return &Error{Code: CodeNotEligible, Detail: "This voucher is for groups that your token does not name."}
}

// RulesFixed refuses other rules of a fair sale for a voucher that has orders or entries.
func RulesFixed() *Error {
	return Conflict("The voucher has orders or entries: the rules of its sale stay as they are.")
}

// WaitlistPlace is a user's place among those who wait for a unit of a voucher.
type WaitlistPlace struct {
	VoucherID string `json:"voucher_id"`
	// Position begins at 1; far behind it may count who has left; 0: the place has become an order.
	Position int64     `json:"position"`
	JoinedAt time.Time `json:"joined_at"`
	OrderID  string    `json:"order_id,omitempty"` // the order that the place became
}

// Joining asks for a place. Early says that the user may buy from the voucher's early beginning on.
type Joining struct {
	UserID string
	Early  bool
}

// Joined is what became of a Joining; Created says that the place is new.
type Joined struct {
	Place   WaitlistPlace
	Created bool
	Err     error
}

// ErrUnitsFree is the cause of the CONFLICT for who wants to wait although units remain.
var ErrUnitsFree = errors.New("units remain in the database")

// UnitsFree refuses a place while units are free.
func UnitsFree() *Error {
	return &Error{Code: CodeConflict, Detail: "Units are free: buy one.", Cause: ErrUnitsFree}
}

// NoWaitlist refuses a place for a voucher that has no waitlist.
func NoWaitlist() *Error { return Conflict("The voucher has no waitlist.") }

// Allocation is how a voucher's units find their buyers. The zero value is FirstCome.
type Allocation string

// The allocations.
const (
	FirstCome Allocation = ""     // in the API "first_come"
	ByDraw    Allocation = "draw" // purchases are entries; who gets a unit is drawn at the end
)

const firstComeText = "first_come"

// MarshalText implements encoding.TextMarshaler.
func (a Allocation) MarshalText() ([]byte, error) {
	if a == FirstCome {
		return []byte(firstComeText), nil
	}
	return []byte(a), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Allocation) UnmarshalText(text []byte) error {
	switch string(text) {
	case firstComeText, "":
		*a = FirstCome
	case string(ByDraw):
		*a = ByDraw
	default:
		return fmt.Errorf("there is no allocation %q", text)
	}
	return nil
}

// ErrEntry says that a request to buy is an entry in a draw. Who did not expect it had another voucher in mind.
var ErrEntry = Unavailable("The voucher was changed a moment ago.", nil)

// EntryStatus is what became of an entry in a draw.
type EntryStatus string

// The statuses.
const (
	EntryEntered EntryStatus = "entered" // it is not drawn yet
	EntryWon     EntryStatus = "won"     // it became an order
	EntryWaiting EntryStatus = "waiting" // for a unit that comes back
	EntryLost    EntryStatus = "lost"    // it waits no more
)

// EntryStatuses lists every status.
func EntryStatuses() []EntryStatus {
	return []EntryStatus{EntryEntered, EntryWon, EntryWaiting, EntryLost}
}

// Entry is one user's entry in a voucher's draw. Nonce and Leaf are its owner's alone until the list is published.
type Entry struct {
	VoucherID string      `json:"voucher_id"`
	Status    EntryStatus `json:"status"`
	OrderID   string      `json:"order_id,omitempty" doc:"The order that it became."`
	Position  int64       `json:"position,omitempty" doc:"Among those who wait, from 1."`
	EnteredAt time.Time   `json:"entered_at"`
	Nonce     string      `json:"nonce" doc:"Random, 16 bytes in hex. Keep it to yourself until the draw: with it, anybody who knows your id finds your leaf."`
	Leaf      string      `json:"leaf" doc:"What stands for this entry in the published list: SHA-256 in hex."`
}

// Entering is a user who enters a draw.
type Entering struct {
	VoucherID, UserID string

	Early bool // the user may buy from the voucher's early beginning on
}

// Entered is what became of an Entering: the entry, that of an earlier call included, or a refusal.
type Entered struct {
	Entry  Entry
	Err    error
	Waited time.Duration // of the transaction, for the draw's row
}

// Draw is what is published of a draw. With the list of leaves in drawn order it proves that the order was not chosen.
type Draw struct {
	VoucherID  string     `json:"voucher_id"`
	Algorithm  string     `json:"algorithm" example:"seckill-draw-1" doc:"seckill-draw-2 with a beacon."`
	Commitment string     `json:"commitment" doc:"SHA-256 of the secret, in hex: published before anybody could enter."`
	Entries    int64      `json:"entries" doc:"How many there are."`
	ClosedAt   *time.Time `json:"closed_at,omitempty" doc:"From then on nobody could enter."`
	Root       string     `json:"root,omitempty" doc:"Of the closed list of entries: SHA-256 in hex."`
	Winners    int64      `json:"winners,omitempty" doc:"How many of the drawn order, from its beginning, got an order; the others wait."`
	DrawnAt    *time.Time `json:"drawn_at,omitempty" doc:"From then on every entry is served."`
	Secret     string     `json:"secret,omitempty" doc:"In hex, once it is drawn."`
	Beacon     string     `json:"beacon,omitempty" doc:"What is drawn in public after the end. The draw waits for its value, and its order depends on it."`
	Value      string     `json:"value,omitempty" doc:"Of the beacon, once an administrator has entered it."`
}

// DrawnLeaves is one page of the leaves of a draw, in the drawn order; NextCursor is empty on the last one.
type DrawnLeaves struct {
	Items      []string `json:"items" nullable:"false"`
	NextCursor string   `json:"next_cursor,omitempty"`
}

// DrawState is a draw that is to be done, as far as it is.
type DrawState struct {
	VoucherID string
	Secret    []byte
	Entries   int64
	Closed    bool          `gorm:"-"`
	Root      []byte        // nil: the list was not read yet
	Beacon    string        `gorm:"->"`                  // empty: it depends on nothing else
	Value     string        `gorm:"column:beacon_value"` // of the beacon; empty: not known yet
	Position  int64         // so many of the drawn order are served
	Overdue   time.Duration `gorm:"-"` // since it could be drawn
}

// Drawn is one place of the drawn order.
type Drawn struct {
	UserID string
	Leaf   [32]byte
}

// CheckValue refuses what no beacon has as its value.
func CheckValue(value string) error { return checkLine("value", &value) }

package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"
)

// Role is what an account may do. An administrator may do what a user may.
type Role string

// The roles.
const (
	RoleUser  Role = "user"
	RoleAdmin Role = "admin"
)

// Level is what an administrator may do: each level does what those before it do, too.
type Level string

// The levels.
const (
	LevelViewer   Level = "viewer"   // sees
	LevelCashier  Level = "cashier"  // also redeems codes
	LevelOperator Level = "operator" // also vouchers, stock, pause, refunds
	LevelAdmin    Level = "admin"    // everything
)

// Levels lists every level, the least first.
func Levels() []Level { return []Level{LevelViewer, LevelCashier, LevelOperator, LevelAdmin} }

// Reaches reports whether a level includes another one. What is no level includes none.
func (l Level) Reaches(least Level) bool {
	have, needed := slices.Index(Levels(), l), slices.Index(Levels(), least)
	return needed >= 0 && have >= needed
}

// Account is a person who can log in. Buyers need none: their tokens may come from another issuer.
type Account struct {
	ID           string    `json:"id"`
	Username     string    `json:"username"`
	Role         Role      `json:"role"`
	PasswordHash string    `json:"-"`
	CreatedAt    time.Time `json:"-" gorm:"autoCreateTime:false"`

	// Version is 1 at first; another password or disabling raises it, and so ends every token of a lower version.
	Version   int64      `json:"-"`
	Level     Level      `json:"-"` // of an administrator; empty: admin, see Grade
	Groups    Groups     `json:"-" gorm:"column:group_names"`
	Disabled  bool       `json:"-"` // it cannot log in
	ChangedAt *time.Time `json:"-"` // when an existing account was last changed; nil: never
}

// Grade is what the account may do as an administrator; empty: nothing. One without a level may do everything.
func (a Account) Grade() Level {
	if a.Role != RoleAdmin {
		return ""
	}
	return cmp.Or(a.Level, LevelAdmin)
}

// The actions of the administrators' log.
const (
	ActionVoucherCreate = "voucher.create"
	ActionVoucherChange = "voucher.change"
	ActionStockChange   = "voucher.stock"
	ActionRebuild       = "voucher.rebuild"
	ActionBeacon        = "voucher.beacon"
	ActionLimitsChange  = "limits.change"
	ActionUserErase     = "user.erase"
	ActionOrderRedeem   = "order.redeem"
	ActionOrderUnredeem = "order.unredeem"
	ActionOrderRefund   = "order.refund"
	ActionOrderCancel   = "order.cancel"
	ActionOrderPaid     = "order.paid"
	ActionAdminCreate   = "admin.create"
	ActionAdminChange   = "admin.change"
	ActionGroupsChange  = "account.groups"
	ActionEventsReplay  = "events.replay"

	// Without a transaction in the database: they are logged before they are done, as asked for.
	ActionRepair       = "voucher.repair"
	ActionLetterReplay = "letter.replay"
	ActionLetterDrop   = "letter.drop"
)

// The subjects that are no rows: the rate limits of all instances, and the receivers of events.
const (
	SubjectLimits = "limits"
	SubjectEvents = "events"
)

// AdminChange is one change by an administrator. Before and After are JSON; a created subject has no Before.
type AdminChange struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"` // a user's id, or BySystem
	Action string    `json:"action"`
	// Subject is the id of a voucher, an order or an account, a dead letter's number, or one of the constants.
	Subject string          `json:"subject"`
	Before  json.RawMessage `json:"before,omitempty"`
	After   json.RawMessage `json:"after,omitempty"`
}

// AdminLogQuery selects changes, newest first. An empty Actor or Subject selects everybody's, or everything.
type AdminLogQuery struct {
	Actor   string
	Subject string
	Cursor  string
	Limit   int
}

// AdminLogPage is one page of the log.
type AdminLogPage Page[AdminChange]

// Event tells other systems of one change of an order or a voucher.
type Event struct {
	ID         int64
	Type       string // "order." and the new status, or the action on a voucher
	Subject    string // id of the order or the voucher
	HappenedAt time.Time
	Data       string // JSON: the order or the voucher, as it is since then
	Position   int64  // among all events, in the order in which receivers get them; 0: it has none yet
}

// EventReceiver is how far a receiver of events has come.
type EventReceiver struct {
	URL        string     `json:"url"`
	Position   int64      `json:"-"`         // of the last event that it has
	Replays    int64      `json:"-"`         // that were asked for
	Delivered  int64      `json:"delivered"` // repetitions too
	Waiting    int64      `json:"waiting" gorm:"-"`
	OldestAt   *time.Time `json:"oldest_at,omitempty" gorm:"-"` // when the oldest that waits happened
	Failures   int64      `json:"failures"`                     // in a row
	Stopped    bool       `json:"stopped"`                      // it answered 410: a replay restarts it
	LastAnswer string     `json:"last_answer,omitempty"`
	AnsweredAt *time.Time `json:"answered_at,omitempty"`
	NextAt     *time.Time `json:"next_at,omitempty"` // it is not tried before; nil: at once
}

// EventReceivers are those of the settings.
type EventReceivers struct {
	Items []EventReceiver `json:"items"`
}

// ErrReceiverGone is a receiver's answer that it wants no more events (410).
var ErrReceiverGone = errors.New("the receiver wants no more events")

// Idempotency makes a call happen once: a repeated Key gets the first answer, or CONFLICT for another Fingerprint.
type Idempotency struct {
	Scope       string // who calls what, so that keys of two callers never meet
	Key         string
	Fingerprint string // hash of what was asked
}

// PersonData is everything that is held of a user id.
type PersonData struct {
	UserID    string          `json:"user_id"`
	Account   *Account        `json:"account,omitempty"`
	Groups    Groups          `json:"groups,omitempty"`
	CreatedAt *time.Time      `json:"created_at,omitempty" doc:"Of the account."`
	Orders    []PersonOrder   `json:"orders"`
	Waitlist  []WaitlistPlace `json:"waitlist" doc:"Places, each with its number as position."`
	Entries   []Entry         `json:"entries" doc:"Of draws."`
	Events    []PersonEvent   `json:"events" doc:"Of the orders, that wait to be sent."`
	Log       []AdminChange   `json:"log" doc:"What the user changed as an administrator, and what administrators changed of the account and of the orders."`
}

// PersonOrder is an order with its money.
type PersonOrder struct {
	OrderDetail

	Payments []Payment `json:"payments"`
	Refunds  []Refund  `json:"refunds"`
}

// PersonEvent is an event that was not sent yet.
type PersonEvent struct {
	Type       string          `json:"type"`
	Subject    string          `json:"subject"`
	HappenedAt time.Time       `json:"happened_at"`
	Data       json.RawMessage `json:"data"`
}

package model

import (
	"fmt"
	"time"
)

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

// ErrEntry says of a request to buy that it is not refused, and that it is an entry in a draw. Whoever does not expect that
// had another voucher in mind, as it was a moment ago.
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

// Entry is one user's entry in the draw of one voucher. Only its owner knows Nonce and Leaf until the list of leaves
// is published. With them the owner finds the entry in the list.
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
	Algorithm  string     `json:"algorithm" example:"seckill-draw-1"`
	Commitment string     `json:"commitment" doc:"SHA-256 of the secret, in hex: published before anybody could enter."`
	Entries    int64      `json:"entries" doc:"How many there are."`
	ClosedAt   *time.Time `json:"closed_at,omitempty" doc:"From then on nobody could enter."`
	Root       string     `json:"root,omitempty" doc:"Of the closed list of entries: SHA-256 in hex."`
	Winners    int64      `json:"winners,omitempty" doc:"How many of the drawn order, from its beginning, got an order; the others wait."`
	DrawnAt    *time.Time `json:"drawn_at,omitempty" doc:"From then on every entry is served."`
	Secret     string     `json:"secret,omitempty" doc:"In hex, once it is drawn."`
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
	Closed    bool
	Root      []byte // nil: the list was not read yet
	Position  int64  // so many of the drawn order are served
	Overdue   time.Duration
}

// Drawn is one place of the drawn order.
type Drawn struct {
	UserID string
	Leaf   [32]byte
}

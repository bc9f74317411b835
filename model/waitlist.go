package model

import (
	"errors"
	"time"
)

// WaitlistPlace is a user's place among those who wait for a unit of a voucher.
type WaitlistPlace struct {
	VoucherID string    `json:"voucher_id"`
	Position  int64     `json:"position"` // from 1; far behind it may also count who has left; 0: the place has become an order
	JoinedAt  time.Time `json:"joined_at"`
	OrderID   string    `json:"order_id,omitempty"` // the order that the place became
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

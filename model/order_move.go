package model

import (
	"fmt"
	"slices"
	"time"
)

// Mover is who may move an order from one status to another.
type Mover string

// The movers.
const (
	MoverService  Mover = "service"  // the service itself
	MoverBuyer    Mover = "buyer"    // the order's own user
	MoverAdmin    Mover = "admin"    // an administrator
	MoverProvider Mover = "provider" // the payment provider, whose money arrived, or went back
)

// The actors of a history that are no users.
const (
	BySystem   = "system"   // the service itself
	ByProvider = "provider" // the payment provider
)

// OrderStamp is the column that keeps when a move was made; empty for none.
type OrderStamp string

// The stamps. A row has no closed_at before it is closed, and keeps it when late money is refunded afterwards.
const (
	StampUnpaid   OrderStamp = "unpaid_at"
	StampPaid     OrderStamp = "paid_at"
	StampRedeemed OrderStamp = "redeemed_at"
	StampClosed   OrderStamp = "closed_at"
)

// Transition is one legal move of an order's status.
type Transition struct {
	From, To OrderStatus
	By       Mover
	Stamp    OrderStamp
}

// Transitions lists the contract's legal moves. Only an undone use leads back: an order that was paid once is paid, and
// may be redeemed, again. Each use is a row of its own, so a move is known by more than the status that it was made from.
func Transitions() []Transition {
	return []Transition{
		{OrderProcessing, OrderUnpaid, MoverService, StampUnpaid},
		{OrderProcessing, OrderPaid, MoverService, StampPaid}, // it is free
		{OrderProcessing, OrderFailed, MoverService, StampClosed},
		{OrderUnpaid, OrderPaid, MoverProvider, StampPaid},
		{OrderUnpaid, OrderPaid, MoverAdmin, StampPaid}, // elsewhere
		{OrderUnpaid, OrderCanceled, MoverBuyer, StampClosed},
		{OrderUnpaid, OrderExpired, MoverService, StampClosed},
		{OrderPaid, OrderRedeemed, MoverAdmin, StampRedeemed},
		{OrderRedeemed, OrderPaid, MoverAdmin, ""},              // the use is undone; when it was paid does not change
		{OrderRedeemed, OrderRefunded, MoverAdmin, StampClosed}, // what was used is paid back; its unit is gone
		{OrderPaid, OrderRefunded, MoverAdmin, StampClosed},
		{OrderPaid, OrderRefunded, MoverBuyer, StampClosed},    // within the voucher's time for it
		{OrderPaid, OrderRefunded, MoverProvider, StampClosed}, // all its money went back there
		{OrderCanceled, OrderRefunded, MoverService, ""},       // late money goes back, here and below; no unit is out
		{OrderExpired, OrderRefunded, MoverService, ""},
		{OrderFailed, OrderRefunded, MoverService, ""},
	}
}

// Ends reports whether the order holds no unit any more after the move.
func (t Transition) Ends() bool {
	return (Order{Status: t.From}).Live() && !(Order{Status: t.To}).Live()
}

// WritesOff reports whether the move takes the order's unit off the stock: it is used, and nobody gets it.
func (t Transition) WritesOff() bool { return t.From == OrderRedeemed && t.Ends() }

// ReturnsUnit reports whether the order's unit is on sale again after the move.
func (t Transition) ReturnsUnit() bool { return t.Ends() && !t.WritesOff() }

// undoes reports whether the move is the undo of a use.
func (t Transition) undoes() bool { return t.From == OrderRedeemed && t.To == OrderPaid }

// Move finds the legal move of a mover from one status to another, or answers ILLEGAL_STATE with the present status.
func Move(from, to OrderStatus, by Mover) (Transition, error) {
	for _, t := range Transitions() {
		if t.From == from && t.To == to && t.By == by {
			return t, nil
		}
	}
	return Transition{}, IllegalMove(from, to)
}

// IllegalMove refuses a move, with the present status.
func IllegalMove(from, to OrderStatus) *Error {
	return &Error{
		Code:        CodeIllegalState,
		Detail:      fmt.Sprintf("An order that is %s cannot be %s.", from, to),
		OrderStatus: from,
	}
}

// Apply is the order after a move at an instant.
func (t Transition) Apply(o Order, at time.Time) Order {
	o.Status = t.To
	if t.undoes() {
		o.RedeemedAt = nil
	}
	switch t.Stamp {
	case StampUnpaid:
		o.UnpaidAt = &at
	case StampPaid:
		o.PaidAt = &at
	case StampRedeemed:
		o.RedeemedAt = &at
	case StampClosed:
		o.ClosedAt = &at
	}
	return o
}

// OrderMove is one change of an order's status, as its history tells it.
type OrderMove struct {
	At     time.Time    `json:"at" gorm:"column:moved_at"`
	From   *OrderStatus `json:"from" gorm:"column:from_status"` // nil: the order's creation
	To     OrderStatus  `json:"to" gorm:"column:to_status"`
	By     string       `json:"by" gorm:"column:actor"` // a user's id, BySystem or ByProvider
	Reason string       `json:"reason,omitempty"`
}

// TableName implements gorm's Tabler.
func (OrderMove) TableName() string { return "order_history" }

// Event is the type under which other systems hear of the move.
func (t Transition) Event() string {
	if t.undoes() {
		return "order.unredeemed"
	}
	return "order." + string(t.To)
}

// OrderUse is one use of an order's code. At most one of an order is not undone.
type OrderUse struct {
	OrderID  string     `json:"-"`
	At       time.Time  `json:"at" gorm:"column:used_at"`
	By       string     `json:"by" gorm:"column:used_by" doc:"The administrator."`
	Place    string     `json:"place,omitempty" doc:"The group among the voucher's redeemers for which the code was used."`
	UndoneAt *time.Time `json:"undone_at,omitempty" doc:"Absent: the use counts."`
	UndoneBy string     `json:"undone_by,omitempty"`
	Reason   string     `json:"reason,omitempty" doc:"Why it was undone."`
}

// TableName implements gorm's Tabler.
func (OrderUse) TableName() string { return "uses" }

// Validity is when a code can be used; nil: whenever it is early or late.
type Validity struct {
	ValidFrom  *time.Time `json:"valid_from,omitempty"`
	ValidUntil *time.Time `json:"valid_until,omitempty"`
}

// Refusal tells why a code cannot be used at an instant; nil: it can.
func (v Validity) Refusal(now time.Time) error {
	switch {
	case v.ValidFrom != nil && now.Before(*v.ValidFrom):
		return &Error{Code: CodeNotYetValid, Detail: "This code cannot be used yet.", Validity: v}
	case v.ValidUntil != nil && !now.Before(*v.ValidUntil):
		return &Error{Code: CodeExpired, Detail: "This code cannot be used any more: its time is over.", Validity: v}
	}
	return nil
}

// ValidityOf is when the code of an order that was paid at an instant can be used. The earlier of two ends counts.
func (f *VoucherFields) ValidityOf(paidAt time.Time) Validity {
	v := Validity{ValidFrom: f.ValidFrom, ValidUntil: f.ValidUntil}
	if f.ValidFor > 0 {
		if ends := paidAt.Add(time.Duration(f.ValidFor)); v.ValidUntil == nil || ends.Before(*v.ValidUntil) {
			v.ValidUntil = &ends
		}
	}
	return v
}

// Shortens reports whether some code, or the time to give an order back, would end earlier or begin later than before.
func (f *VoucherFields) Shortens(before *VoucherFields) bool {
	later := f.ValidFrom != nil && (before.ValidFrom == nil || f.ValidFrom.After(*before.ValidFrom))
	earlier := f.ValidUntil != nil && (before.ValidUntil == nil || f.ValidUntil.Before(*before.ValidUntil))
	shorter := f.ValidFor > 0 && (before.ValidFor == 0 || f.ValidFor < before.ValidFor)
	return later || earlier || shorter || f.Withdrawal < before.Withdrawal
}

// Till is where codes are used: by whom, and for which groups of redeemers.
type Till struct {
	By     string
	Groups Groups
	Place  string // one of them; empty: the first that a voucher names

	Everywhere bool // whatever groups a voucher names
}

// PlaceOf is the group for which a till uses codes of the voucher; empty: none. NOT_ELIGIBLE: it may use none.
func (f *VoucherFields) PlaceOf(t Till) (string, error) {
	mine := slices.DeleteFunc(slices.Clone(f.Redeemers), func(g string) bool { return !slices.Contains(t.Groups, g) })
	if len(mine) == 0 && len(f.Redeemers) > 0 && !t.Everywhere {
		return "", &Error{Code: CodeNotEligible, Detail: "This code is used elsewhere: none of your groups may."}
	}
	if t.Place != "" && !slices.Contains(mine, t.Place) && (!t.Everywhere || !slices.Contains(f.Redeemers, t.Place)) {
		return "", Invalid("body.place", "is none of your groups that may use this code")
	}
	if t.Place == "" && len(mine) > 0 {
		return mine[0], nil
	}
	return t.Place, nil
}

// Undo asks for the use of an order to be undone.
type Undo struct {
	OrderID, By, Reason string

	Anytime bool // also another's use, and one of long ago
}

// Check refuses a reason that explains nothing, or does not fit.
func (u Undo) Check() error { return checkLine("reason", &u.Reason) }

// OrderDetail is an order with everything that happened to it, and its uses, oldest first.
type OrderDetail struct {
	Order
	History []OrderMove `json:"history"`
	Uses    []OrderUse  `json:"uses,omitempty"`
}

// OverdueOrder is an unpaid order whose time has passed, and how long ago.
type OverdueOrder struct {
	ID        string
	VoucherID string
	ExpiresAt time.Time
	Overdue   time.Duration `gorm:"-"`
	Window    time.Duration `gorm:"-"` // in which it was to be paid
}

package model

import (
	"fmt"
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

// Transitions lists the contract's legal moves. No status is entered twice: a move from the status found is made once.
func Transitions() []Transition {
	return []Transition{
		{OrderProcessing, OrderUnpaid, MoverService, StampUnpaid},
		{OrderProcessing, OrderPaid, MoverService, StampPaid}, // it is free
		{OrderProcessing, OrderFailed, MoverService, StampClosed},
		{OrderUnpaid, OrderPaid, MoverProvider, StampPaid},
		{OrderUnpaid, OrderCanceled, MoverBuyer, StampClosed},
		{OrderUnpaid, OrderExpired, MoverService, StampClosed},
		{OrderPaid, OrderRedeemed, MoverAdmin, StampRedeemed},
		{OrderPaid, OrderRefunded, MoverAdmin, StampClosed},
		{OrderPaid, OrderRefunded, MoverBuyer, StampClosed},    // within the voucher's time for it
		{OrderPaid, OrderRefunded, MoverProvider, StampClosed}, // all its money went back there
		{OrderCanceled, OrderRefunded, MoverService, ""},       // late money goes back, here and below; no unit is out
		{OrderExpired, OrderRefunded, MoverService, ""},
		{OrderFailed, OrderRefunded, MoverService, ""},
	}
}

// ReturnsUnit reports whether the order's unit is on sale again after the move.
func (t Transition) ReturnsUnit() bool {
	return (Order{Status: t.From}).Live() && !(Order{Status: t.To}).Live()
}

// Move finds the legal move of a mover from one status to another, or answers ILLEGAL_STATE with the present status.
func Move(from, to OrderStatus, by Mover) (Transition, error) {
	for _, t := range Transitions() {
		if t.From == from && t.To == to && t.By == by {
			return t, nil
		}
	}
	return Transition{}, &Error{
		Code:        CodeIllegalState,
		Detail:      fmt.Sprintf("An order that is %s cannot be %s.", from, to),
		OrderStatus: from,
	}
}

// Apply is the order after a move at an instant.
func (t Transition) Apply(o Order, at time.Time) Order {
	o.Status = t.To
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
	At     time.Time    `json:"at"`
	From   *OrderStatus `json:"from"` // nil: the order's creation
	To     OrderStatus  `json:"to"`
	By     string       `json:"by"` // a user's id, BySystem or ByProvider
	Reason string       `json:"reason,omitempty"`
}

// OrderDetail is an order with everything that happened to it, oldest first.
type OrderDetail struct {
	Order
	History []OrderMove `json:"history"`
}

// OverdueOrder is an unpaid order whose time has passed, and how long ago.
type OverdueOrder struct {
	ID        string
	VoucherID string
	ExpiresAt time.Time
	Overdue   time.Duration `gorm:"-"`
	Window    time.Duration `gorm:"-"` // in which it was to be paid
}

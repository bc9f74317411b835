package model

import "time"

// Event tells other systems of one change of an order or a voucher.
type Event struct {
	ID         int64
	Type       string // "order." and the new status, or the action on a voucher
	Subject    string // id of the order or the voucher
	HappenedAt time.Time
	Data       string // JSON: the order or the voucher, as it is since then
}

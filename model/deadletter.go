package model

import "time"

// DeadLetter is an order, or a whole message, that could not be persisted.
type DeadLetter struct {
	Sequence uint64
	At       time.Time
	Reason   string
	// Reservation is nil when the message could not even be read; then Raw is it.
	Reservation *Reservation
	Raw         []byte
}

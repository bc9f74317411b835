package model

import "time"

// Backlog is what waits in the queue.
type Backlog struct {
	Messages int64
	// Age is how long the oldest message has been waiting, by the queue's clock.
	Age time.Duration
	// LastSequence is that of the newest message ever stored.
	LastSequence uint64
	// AckFloor is the sequence up to which every message was acknowledged.
	AckFloor uint64
}

// AnyVoucher stands, where the queue is asked, for messages that may carry orders of any
// voucher.
const AnyVoucher = ""

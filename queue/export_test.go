package queue

import "seckill/model"

// Recent is whether a server's version is new enough.
var Recent = recent

// BacklogFrom is what Backlog makes of the two answers.
var BacklogFrom = backlog

// Decode reads a message and counts what cannot be read of it.
func Decode(body []byte, sequence uint64) ([]model.Reservation, int) {
	good, flaws := decode(body, sequence)
	return good, len(flaws)
}

// MaxRead is maxRead.
const MaxRead = maxRead

// Package ids makes ids that need no coordination between instances and sort by the time of their making.
package ids

import (
	"fmt"

	"github.com/google/uuid"
)

const (
	digits = "0123456789abcdefghijklmnopqrstuv" // base32hex (RFC 4648, 7) in lower case: it keeps the order of bytes
	length = 26                                 // of 128 bits in digits of 5
)

// New returns 26 of [0-9a-v]: a version 7 UUID (RFC 9562), which begins with Unix ms in 48 bits; error: no randomness.
func New() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return encode(id), nil
}

// encode does what package base32 does, which would make its tables anew for each id.
func encode(id uuid.UUID) string {
	var text [length]byte
	bits, held := 0, 0
	n := 0
	for _, b := range id {
		held = held<<8 | int(b)
		for bits += 8; bits >= 5; n++ {
			bits -= 5
			text[n] = digits[held>>bits&31]
		}
		held &= 1<<bits - 1
	}
	text[n] = digits[held<<(5-bits)&31]
	return string(text[:])
}

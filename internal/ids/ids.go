// Package ids makes ids that need no coordination between instances and sort by the time of their making.
package ids

import (
	"fmt"

	"github.com/google/uuid"
)

const (
	// digits are those of base32hex (RFC 4648, 7) in lower case: they keep the order of bytes, without escaping.
	digits = "0123456789abcdefghijklmnopqrstuv"
	// length is that of 128 bits in digits of 5.
	length = 26
)

// New returns 26 characters of [0-9a-v]: a version 7 UUID (RFC 9562), whose first 48 bits are the Unix time in
// milliseconds. It fails only when the system has no randomness to give.
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

// Package ids makes ids that need no coordination between instances and sort
// by the time of their making.
package ids

import (
	"encoding/base32"
	"fmt"

	"github.com/google/uuid"
)

// encoding is base32hex in lower case: unlike plain base32 or base64 it keeps
// the order of the bytes, and it needs no escaping anywhere.
func encoding() *base32.Encoding {
	return base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)
}

// New returns 26 characters of [0-9a-v]: a version 7 UUID (RFC 9562), whose
// first 48 bits are the Unix time in milliseconds. It fails only when the
// system has no randomness to give.
func New() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return encoding().EncodeToString(id[:]), nil
}

// Package ids makes ids that need no coordination between instances and sort by the time of their making.
package ids

import (
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// New returns 26 of [0-9a-v]: a version 7 UUID (RFC 9562), which begins with Unix ms in 48 bits; error: no randomness.
func New() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	// Base32hex (RFC 4648, 7) keeps the order of bytes.
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(id[:])), nil
}

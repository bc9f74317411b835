package lab

import (
	"crypto/rand"
	"strings"
)

// newID returns an id that nobody else has, of lower case letters and digits.
func newID() string { return strings.ToLower(rand.Text()) }

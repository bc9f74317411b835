package model

// Idempotency makes a call of an administrator happen once: the same Key with
// the same Fingerprint gets the first answer again, the same Key with another
// Fingerprint is a CONFLICT. An empty Key asks for nothing.
type Idempotency struct {
	Scope       string // who calls what, so that keys of two callers never meet
	Key         string
	Fingerprint string // hash of what was asked
}

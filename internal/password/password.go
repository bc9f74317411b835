// Package password turns passwords into what may be stored, and compares, by argon2id (RFC 9106): some 20 ms and 19
// MiB, with which anybody could occupy a server amid a sale. So few are computed at once, at a lower priority than
// everything else, and few wait their turn; who comes then is sent away at once.
package password

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"seckill/internal/budget"
	"seckill/model"
)

// Parameters of new hashes: OWASP's minimum for argon2id (m=19456 (19 MiB), t=2, p=1).
const (
	memory     = 19 * 1024 // KiB
	iterations = 2
	lanes      = 1
	saltLength = 16 // bytes, RFC 9106, section 3.1
	keyLength  = 32 // bytes
)

const (
	patience    = 3 * budget.Look // a caller's wait for its turn: within the 5 s of every answer, if busy too
	maxWaiting  = 64              // callers that wait or compute: on a quiet machine the last for 1.5 s
	maxOfOne    = maxWaiting / 2  // of them one caller's, so that an address keeps no others out; a school has one
	maxDoubtful = maxWaiting / 2  // of them callers that failed lately; the rest is for those that have not
)

// Hasher hashes and verifies. It is safe for concurrent use.
type Hasher struct {
	turns    chan struct{}
	patience time.Duration
	unknown  encoded // stands for the hash of a user that does not exist

	mu      sync.Mutex
	waiting int            // callers that wait or compute
	callers map[string]int // the same by caller; those without any are left out
}

// Caller is on whose behalf a password is hashed.
type Caller struct {
	Address  string // a network; empty: the program itself
	Doubtful bool   // it has failed lately
}

// New makes a Hasher that runs at most concurrency hashes at once (at least one), in 19 MiB each.
func New(concurrency int) *Hasher {
	unknown := fresh()
	unknown.key = make([]byte, keyLength)
	turns := make(chan struct{}, max(concurrency, 1))
	return &Hasher{turns: turns, callers: map[string]int{}, patience: patience, unknown: unknown}
}

// Normal is a password's spelling to hash and count: NFKC (NIST SP 800-63B, 5.1.1.2), as keyboards type é in two ways.
func Normal(password string) string { return norm.NFKC.String(password) }

// Hash is the salted PHC string of a password in Normal spelling; RATE_LIMITED if too many wait or its turn is late.
func (h *Hasher) Hash(ctx context.Context, caller Caller, password string) (string, error) {
	e := fresh()
	var err error
	if e.key, err = h.derive(ctx, caller, Normal(password), e, keyLength); err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	return e.String(), nil
}

// Verify compares a password in Normal spelling with a PHC string. An empty one, an unknown user's, matches nothing and
// takes as long as a real one, so that time reveals no account. RATE_LIMITED as Hash.
func (h *Hasher) Verify(ctx context.Context, caller Caller, password, phc string) (bool, error) {
	e, known := h.unknown, phc != ""
	if known {
		var ok bool
		if e, ok = parse(phc); !ok {
			return false, errors.New("a stored password is none of argon2id, or its parameters are out of bounds")
		}
	}
	key, err := h.derive(ctx, caller, Normal(password), e, uint32(len(e.key))) //nolint:gosec // parse bounds the length
	if err != nil {
		return false, fmt.Errorf("verify a password: %w", err)
	}
	return known && subtle.ConstantTimeCompare(key, e.key) == 1, nil
}

// derive waits for a turn and computes. The computation cannot be interrupted: it ends behind a caller that left.
func (h *Hasher) derive(ctx context.Context, caller Caller, password string, e encoded, length uint32) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !h.enter(caller) {
		return nil, busy()
	}
	if err := h.turn(ctx); err != nil {
		h.leave(caller)
		return nil, err
	}
	key := make(chan []byte, 1)
	go func() {
		defer h.leave(caller)
		defer func() { <-h.turns }()
		stepBack()
		key <- argon2.IDKey([]byte(password), e.salt, e.iterations, e.memory, e.lanes, length)
	}()
	select {
	case key := <-key:
		return key, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *Hasher) turn(ctx context.Context) error {
	select {
	case h.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(h.patience):
		return busy()
	}
}

// enter takes a place among those that wait, if there is one for this caller.
func (h *Hasher) enter(caller Caller) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	places := maxWaiting
	if caller.Doubtful {
		places = maxDoubtful
	}
	if h.waiting >= places || h.callers[caller.Address] >= maxOfOne {
		return false
	}
	h.waiting++
	h.callers[caller.Address]++
	return true
}

func (h *Hasher) leave(caller Caller) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting--
	if h.callers[caller.Address]--; h.callers[caller.Address] == 0 {
		delete(h.callers, caller.Address)
	}
}

func busy() error {
	return &model.Error{
		Code: model.CodeRateLimited, Detail: "Too many people log in or register at this moment.",
		RetryAfter: budget.Work/2 + mathrand.N(budget.Work/2), //nolint:gosec // spreads the load, guards nothing
	}
}

// Bounds of what is accepted from storage, so that a row written by hand cannot occupy the machine (OWASP times four).
const (
	maxMemory     = 128 * 1024 // KiB
	maxIterations = 16
	maxLanes      = 16
	maxBytes      = 64 // of salt and key
)

func fresh() encoded {
	e := encoded{memory: memory, iterations: iterations, lanes: lanes, salt: make([]byte, saltLength)}
	_, _ = rand.Read(e.salt) // it never fails: see crypto/rand
	return e
}

type encoded struct {
	memory     uint32 // KiB
	iterations uint32
	lanes      uint8
	salt       []byte
	key        []byte
}

// String is the PHC string format, https://github.com/P-H-C/phc-string-format/blob/master/phc-sf-spec.md.
func (e encoded) String() string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s",
		argon2.Version, e.memory, e.iterations, e.lanes, b64(e.salt), b64(e.key))
}

func parse(phc string) (e encoded, ok bool) {
	var version int
	var tail string
	_, _ = fmt.Sscanf(phc, "$argon2id$v=%d$m=%d,t=%d,p=%d$%s", &version, &e.memory, &e.iterations, &e.lanes, &tail)
	salt, key, _ := strings.Cut(tail, "$")
	e.salt, _ = base64.RawStdEncoding.DecodeString(salt)
	e.key, _ = base64.RawStdEncoding.DecodeString(key)
	ok = e.String() == phc && // whatever could not be read is not written as it was
		e.lanes >= 1 && e.lanes <= maxLanes && e.iterations >= 1 && e.iterations <= maxIterations &&
		e.memory >= 8*uint32(e.lanes) && e.memory <= maxMemory &&
		len(e.salt) >= 8 && len(e.salt) <= maxBytes && len(e.key) >= 16 && len(e.key) <= maxBytes
	return e, ok
}

// Package password turns passwords into what may be stored, and compares. It uses argon2id (RFC 9106), which takes some
// 20 ms and 19 MiB, so that anybody who sends passwords could occupy a server that is in the middle of a sale.
// Therefore few are computed at once, at a lower priority than everything else, and few wait for their turn; who comes
// then is sent away at once.
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
	// patience is how long a caller waits for its turn: within the 5 s of every answer, also on a busy machine.
	patience = 3 * budget.Look
	// maxWaiting callers wait or compute at once: the last of them for a second and a half on a quiet machine.
	maxWaiting = 64
	// maxOfOne of them may be one caller's, so that one address keeps no others out; a school has one address.
	maxOfOne = maxWaiting / 2
	// maxDoubtful is how many of them may be callers that have failed lately. The rest is kept for those that have not.
	maxDoubtful = maxWaiting / 2
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

// Option changes how a Hasher works.
type Option func(*Hasher)

// Patience replaces how long a caller waits for its turn.
func Patience(d time.Duration) Option { return func(h *Hasher) { h.patience = d } }

// New makes a Hasher that runs at most concurrency hashes at once (at least one), in 19 MiB each.
func New(concurrency int, options ...Option) *Hasher {
	h := &Hasher{
		turns:    make(chan struct{}, max(concurrency, 1)),
		callers:  make(map[string]int),
		patience: patience,
		unknown: encoded{
			memory: memory, iterations: iterations, lanes: lanes,
			salt: make([]byte, saltLength), key: make([]byte, keyLength),
		},
	}
	for _, option := range options {
		option(h)
	}
	return h
}

// Normal is the spelling in which a password is hashed and counted: NFKC, as NIST SP 800-63B, 5.1.1.2, has it.
// An é may be typed as one character or as two, by the same person on another keyboard.
func Normal(password string) string { return norm.NFKC.String(password) }

// Hash returns the PHC string of a password in its normal spelling, with a salt of its own. It answers RATE_LIMITED at
// once when too many wait already, and when its turn does not come in time.
func (h *Hasher) Hash(ctx context.Context, caller Caller, password string) (string, error) {
	e := encoded{memory: memory, iterations: iterations, lanes: lanes, salt: make([]byte, saltLength)}
	if _, err := rand.Read(e.salt); err != nil {
		return "", fmt.Errorf("make a salt: %w", err)
	}
	key, err := h.derive(ctx, caller, Normal(password), e, keyLength)
	if err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	e.key = key
	return e.String(), nil
}

// Verify compares a password in its normal spelling with a PHC string. An empty string, which is what an unknown user
// has, matches nothing and takes as long as a real one, so that time does not tell which users have an account. It
// answers RATE_LIMITED as Hash does.
func (h *Hasher) Verify(ctx context.Context, caller Caller, password, phc string) (bool, error) {
	known := phc != ""
	e := h.unknown
	if known {
		var err error
		if e, err = parse(phc); err != nil {
			return false, fmt.Errorf("read a stored password: %w", err)
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

// turn waits for a turn.
func (h *Hasher) turn(ctx context.Context) error {
	timer := time.NewTimer(h.patience)
	defer timer.Stop()
	select {
	case h.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
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

// leave gives the place back.
func (h *Hasher) leave(caller Caller) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting--
	if h.callers[caller.Address]--; h.callers[caller.Address] == 0 {
		delete(h.callers, caller.Address)
	}
}

// busy refuses a caller for whom there is no place.
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

// encoded is a hash with everything that is needed to compute it again.
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

// parse reads what String wrote. Its errors do not repeat the text.
func parse(phc string) (encoded, error) {
	parts := strings.Split(phc, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return encoded{}, errors.New("it is no argon2id hash")
	}
	if parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return encoded{}, errors.New("its version of argon2 is unknown")
	}
	var e encoded
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &e.memory, &e.iterations, &e.lanes); err != nil {
		return encoded{}, fmt.Errorf("its parameters cannot be read: %w", err)
	}
	if e.lanes < 1 || e.lanes > maxLanes || e.iterations < 1 || e.iterations > maxIterations ||
		e.memory < 8*uint32(e.lanes) || e.memory > maxMemory {
		return encoded{}, errors.New("its parameters are out of bounds")
	}
	var err error
	if e.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil {
		return encoded{}, fmt.Errorf("its salt cannot be read: %w", err)
	}
	if e.key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil {
		return encoded{}, fmt.Errorf("its key cannot be read: %w", err)
	}
	if len(e.salt) < 8 || len(e.salt) > maxBytes || len(e.key) < 16 || len(e.key) > maxBytes {
		return encoded{}, errors.New("its salt or key has an odd length")
	}
	if e.String() != phc {
		return encoded{}, errors.New("it is not written the way it should be")
	}
	return e, nil
}

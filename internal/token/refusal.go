package token

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"seckill/internal/budget"
)

var (
	// ErrInvalid is the error of every token that cannot be trusted; see InvalidError.
	ErrInvalid = errors.New("invalid token")
	// ErrNoKeys is the error of a token whose issuer is trusted, but whose key is not known, and whose keys were not
	// read since it came: the token may be good. See NoKeysError.
	ErrNoKeys = errors.New("the keys of the token's issuer have to be read first")
)

// Reason is why a token is refused: a step that failed, or the claim that is wrong where the signature is good.
type Reason string

// The reasons.
const (
	Malformed      Reason = "malformed" // it is no JWT, or names a member twice
	UnknownIssuer  Reason = "iss"
	UnknownKey     Reason = "kid"
	WrongAlgorithm Reason = "alg"
	WrongSignature Reason = "signature"
	WrongExpiry    Reason = "exp"
	WrongNotBefore Reason = "nbf"
	WrongAudience  Reason = "aud"
	WrongSubject   Reason = "sub"
	WrongRole      Reason = "role"
	WrongLevel     Reason = "level"
	WrongType      Reason = "typ"    // it is a token of another kind
	AccountChanged Reason = "ended"  // its account has changed since, see Authority.Ended
	Unread         Reason = "unread" // ErrNoKeys
)

// Stranger stands for the issuers that are not known, whatever their tokens say.
const Stranger = "unknown"

// Reasons lists every reason.
func Reasons() []Reason {
	return []Reason{
		Malformed, UnknownIssuer, UnknownKey, WrongAlgorithm, WrongSignature, WrongExpiry, WrongNotBefore, WrongAudience,
		WrongSubject, WrongRole, WrongLevel, WrongType, AccountChanged, Unread,
	}
}

// InvalidError is an ErrInvalid. Its text is for the log, Detail for the bearer: a
// sentence that names the wrong claim, empty unless the signature is good.
type InvalidError struct {
	Reason Reason
	Detail string

	cause error
}

// Error implements error.
func (e *InvalidError) Error() string { return fmt.Sprintf("%v: %v", ErrInvalid, e.cause) }

// Unwrap makes it an ErrInvalid, and gives the cause.
func (e *InvalidError) Unwrap() []error { return []error{ErrInvalid, e.cause} }

// invalid refuses a token without a word to its bearer, who need not be its owner.
func invalid(why Reason, format string, args ...any) error {
	return &InvalidError{Reason: why, cause: fmt.Errorf(format, args...)}
}

// wrongClaim refuses a token that is its issuer's.
func wrongClaim(claim Reason, says string) error {
	text := fmt.Sprintf("its %s %s", claim, says)
	return &InvalidError{Reason: claim, Detail: fmt.Sprintf("The token is not accepted: %s.", text), cause: errors.New(text)}
}

// NoKeysError is an ErrNoKeys, and tells when to ask again.
type NoKeysError struct {
	RetryAfter time.Duration

	cause error
}

// Error implements error.
func (e *NoKeysError) Error() string { return fmt.Sprintf("%v: %v", ErrNoKeys, e.cause) }

// Unwrap makes it an ErrNoKeys, and gives the cause.
func (e *NoKeysError) Unwrap() []error { return []error{ErrNoKeys, e.cause} }

// refusals counts refusals, and tells the log of some.
type refusals struct {
	log   *slog.Logger
	count func(issuer string, why Reason)

	mu   sync.Mutex
	told map[refused]telling
}

type refused struct {
	issuer string
	why    Reason
}

type telling struct {
	at     time.Time
	unsaid int // refusals since
}

// Report counts the tokens that are refused, and logs one of them a minute for each
// issuer and reason: at the level info, because anybody can send bad tokens.
func Report(log *slog.Logger, count func(issuer string, why Reason)) Option {
	return func(a *Authority) {
		a.refusals = &refusals{log: log, count: count, told: map[refused]telling{}}
	}
}

// note takes note of one refusal.
func (r *refusals) note(ctx context.Context, now time.Time, what refused, err error) {
	r.count(what.issuer, what.why)
	r.mu.Lock()
	last, seen := r.told[what]
	quiet := seen && now.Sub(last.at) < budget.Survey
	if quiet {
		r.told[what] = telling{last.at, last.unsaid + 1}
	} else {
		r.told[what] = telling{at: now}
	}
	r.mu.Unlock()
	if !quiet {
		r.log.InfoContext(ctx, "a token is refused", slog.String("issuer", what.issuer), slog.String("reason", string(what.why)),
			slog.Int("not_logged_since", last.unsaid), slog.Any("error", err))
	}
}

package model

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const maxRate = 1_000_000_000 // keeps the arithmetic of a rate far from any overflow; no instance serves as many

// Rate allows Events in every Per, all of them at once if need be. The zero Rate limits nothing.
type Rate struct {
	Events int
	Per    time.Duration
}

// Off reports whether the rate limits nothing.
func (r Rate) Off() bool { return r.Events <= 0 || r.Per <= 0 }

// String is the rate as settings have it: "20/s", "100/m", "1000/h", or "0".
func (r Rate) String() string {
	if r.Off() {
		return "0"
	}
	for unit, per := range units() {
		if r.Per == per {
			return strconv.Itoa(r.Events) + "/" + unit
		}
	}
	return strconv.Itoa(r.Events) + "/" + r.Per.String()
}

func units() map[string]time.Duration {
	return map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}
}

// ParseRate reads what String writes. A rate of no events is off, whatever its unit.
func ParseRate(text string) (Rate, error) {
	if text == "0" {
		return Rate{}, nil
	}
	number, unit, _ := strings.Cut(text, "/")
	per, known := units()[unit]
	events, err := strconv.ParseUint(number, 10, 64)
	if err != nil || !known || events > maxRate {
		return Rate{}, fmt.Errorf("%q is not a rate such as 20/s, 100/m or 1000/h, or 0 for none", text)
	}
	if events == 0 {
		return Rate{}, nil
	}
	return Rate{Events: int(events), Per: per}, nil
}

// Limits are the rate limits in force.
type Limits struct {
	User Rate // what one user writes: purchases, cancellations, places, payments
	Addr Rate // all requests of one client address
}

// LimitsPatch changes the limits that it has, for all instances of a database.
type LimitsPatch struct {
	User, Addr *Rate
	By         string // the administrator
}

// Of replaces those of the limits given that the patch has.
func (p LimitsPatch) Of(limits Limits) Limits {
	if p.User != nil {
		limits.User = *p.User
	}
	if p.Addr != nil {
		limits.Addr = *p.Addr
	}
	return limits
}

// LimitRecord is a database's limits: those that an administrator has set, above the settings of every instance.
type LimitRecord struct {
	Set        LimitsPatch
	Deployment string // names the database towards a Redis that several may share
}

type patience struct{}

// OfBuyers marks a context in which something other than a purchase is written for buyers or their provider. It shares
// a few connections of the database, to hold up no purchase; patient, it waits for one until ctx ends, else a second.
func OfBuyers(ctx context.Context, patient bool) context.Context {
	return context.WithValue(ctx, patience{}, patient)
}

// ForBuyers reports whether a context is marked by OfBuyers, and how patient its work is.
func ForBuyers(ctx context.Context) (marked, patient bool) {
	patient, marked = ctx.Value(patience{}).(bool)
	return marked, patient
}

// OrderMode is how orders reach the database.
type OrderMode string

// The modes.
const (
	ModeSync  OrderMode = "sync"
	ModeAsync OrderMode = "async"
)

// LockMode is what a user's lock is made of.
type LockMode string

// The lock modes.
const (
	LockRedis     LockMode = "redis"     // Redisson's layout
	LockMultilock LockMode = "multilock" // on each of three independent Redis
	LockRedlock   LockMode = "redlock"   // on most of an odd number
	LockSetNX     LockMode = "setnx"
	LockMySQL     LockMode = "mysql"
	LockNone      LockMode = "none"
)

// StockStrategy keeps concurrent transactions from one unit. `CHECK (remaining >= 0)` is the last guard.
type StockStrategy string

// The stock strategies.
const (
	StockConditional StockStrategy = "conditional" // reads without a lock; the UPDATE states what it relies on
	StockPessimistic StockStrategy = "pessimistic" // locks the row with SELECT … FOR UPDATE before it reads
	// StockOptimistic reads without a lock, and begins anew when the row's version has changed.
	StockOptimistic StockStrategy = "optimistic"
)

// ModeRecord is what the database says about how it is sold from.
type ModeRecord struct {
	Mode       OrderMode
	Deployment string // names this database to queues and locks that others may share: 16 characters of [a-z0-9]
}

// Instance is one process of the service that is alive.
type Instance struct {
	ID      string    `json:"id"`   // each start of a process has another
	Name    string    `json:"name"` // the machine and the port of its main listener
	Role    string    `json:"role"`
	Mode    OrderMode `json:"mode"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"` // on Redis' clock, as SeenAt
	SeenAt  time.Time `json:"-"`

	// What it sees, as lists with commas: its checks that fail, and the vouchers whose orders do not add up.
	Unready string `json:"unready,omitempty"`
	Drifted string `json:"drifted,omitempty"`
}

// ErrLockBusy says that another holder kept a lock for the whole wait.
var ErrLockBusy = errors.New("the user's lock is busy")

// UserLock is the name of a user's lock for other programs, in Redis and elsewhere; part of the contract.
func UserLock(userID string) string { return "lock:order:" + userID }

// Locker takes locks that all instances share, in whatever lock mode they run.
type Locker interface {
	// Lock waits for the named lock, at most for the wait budget (zero: one try). It MUST return ErrLockBusy when
	// another holder kept the lock for that long, ctx's error when ctx ended, and another one when the truth was not
	// learnt; then nothing is left held. The lease MUST outlast ctx until Unlock: a client may hang up.
	Lock(ctx context.Context, name string, wait time.Duration) (Lease, error)
}

// Lease is a lock that is held.
type Lease interface {
	Context() context.Context // ends when the lock is lost
	Unlock() error            // gives the lock back; it MUST bound its own time: the request's context may have ended
}

// GroupLocker is a Locker that tries many locks in one go. Errors are as Lock's; of a name that comes twice, one is
// busy. Unlock, which is always called, gives back what was taken.
type GroupLocker interface {
	Locker
	TryAll(ctx context.Context, names []string) (errs []error, unlock func() error)
}

// RedisClaim says which Redis is used, and when that was last so.
type RedisClaim struct {
	Identity  string // empty: none was used yet
	RenewedAt time.Time
}

// Tally is what became of the attempts to buy one voucher at one instance, since that instance began to count.
type Tally struct {
	At     time.Time         `json:"at"`     // on the instance's clock
	Placed map[string]uint64 `json:"placed"` // attempts by what became of them: OK or the problem's code
	Took   []uint64          `json:"took"`   // attempts by how long they took: up to each of TallyBounds, and longer
}

// TallyBounds are how long attempts take, in seconds: from an answer out of memory to the contract's longest.
func TallyBounds() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 6}
}

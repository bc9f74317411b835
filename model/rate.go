package model

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxRate keeps the arithmetic of a rate far from any overflow; no instance serves
// as many.
const maxRate = 1_000_000_000

// Rate allows Events in every Per, all of them at once if need be. The zero Rate
// limits nothing.
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
	unit := r.Per.String()
	switch r.Per { //nolint:exhaustive // a unit may be any duration; these have a letter
	case time.Second:
		unit = "s"
	case time.Minute:
		unit = "m"
	case time.Hour:
		unit = "h"
	}
	return strconv.Itoa(r.Events) + "/" + unit
}

// ParseRate reads what String writes. A rate of no events is off, whatever its unit.
func ParseRate(text string) (Rate, error) {
	if text == "0" {
		return Rate{}, nil
	}
	number, unit, _ := strings.Cut(text, "/")
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}
	per, known := units[unit]
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

// LimitRecord is what a database says about limits: those that an administrator has
// set, which win over the settings of every instance.
type LimitRecord struct {
	Set        LimitsPatch
	Deployment string // names the database towards a Redis that several may share
}

// patience is a key of contexts.
type patience struct{}

// OfBuyers marks a context in which something is written for buyers, or is told by their provider, and is no purchase: such work
// shares a few of the database's connections, so that no flood of it keeps a purchase waiting. Work that is patient waits for one
// of them as long as its context lasts; any other gives up after a second.
func OfBuyers(ctx context.Context, patient bool) context.Context {
	return context.WithValue(ctx, patience{}, patient)
}

// ForBuyers reports whether a context is marked by OfBuyers, and how patient its work is.
func ForBuyers(ctx context.Context) (marked, patient bool) {
	patient, marked = ctx.Value(patience{}).(bool)
	return marked, patient
}

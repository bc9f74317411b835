package service

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/password"
	"seckill/internal/poll"
	"seckill/model"
)

// attempts limit who may try a password now: by address, and by account. Nobody is
// locked out for good: no wait is longer than budget.Settled, and an address that has
// not failed lately does not wait for what others did to the account.
//
// An attacker with one address tries some seven passwords a minute, whatever the accounts. One with very many addresses
// tries one account from those that have not failed twelve times a minute, and from the others twice. What the limits
// let through is still hashed in turns, see package password.
type attempts struct {
	mu sync.Mutex // held from the look at the waits to the beginning of an attempt

	addresses *backoff.Failures // by address
	accounts  *backoff.Failures // by account, of addresses that have failed lately
	strangers *backoff.Failures // by account, of addresses that have not
	hashes    *backoff.Failures // by address: whatever is hashed, right or wrong
	joiners   *backoff.Failures // by address: registrations

	held atomic.Int32 // requests that are refused and not answered yet
}

const (
	// maxHeld bounds the requests that are held: some 20 MB. Further ones are refused at once.
	maxHeld = 1_000
	// maxRemembered addresses, and as many accounts, are remembered by each limit: 10 MB.
	// Whoever has more than that many addresses is not stopped by a limit for one.
	maxRemembered = 50_000
)

// newAttempts makes the limits.
func newAttempts() *attempts {
	made := &attempts{}
	for _, limit := range []struct {
		failures **backoff.Failures
		free     int
		forget   time.Duration
	}{
		// Many people share an address, and some of them mistype.
		{&made.addresses, 20, 10 * time.Second},
		// One person shares an account with nobody.
		{&made.accounts, 5, time.Minute},
		{&made.strangers, 10, 5 * time.Second},
		// An office that logs in at once; then five a second, a tenth of what one core hashes.
		{&made.hashes, 150, 200 * time.Millisecond},
		// An account is for long: a network makes a hundred at once, then one a second.
		{&made.joiners, 100, time.Second},
	} {
		policy := backoff.Policy{Free: limit.free, First: budget.Look, Longest: budget.Settled, Forget: limit.forget}
		*limit.failures = backoff.New(policy, maxRemembered, time.Now)
	}
	return made
}

// patiently begins something, and once more after a moment when it was refused.
func (a *attempts) patiently(ctx context.Context, begin func() error) error {
	err := begin()
	if err == nil {
		return nil
	}
	defer a.held.Add(-1)
	if a.held.Add(1) > maxHeld {
		return err
	}
	if poll.Pause(ctx, budget.Look); ctx.Err() != nil {
		return err
	}
	return begin()
}

// attempt is one try of a password that has been let through. It counts as failed until it is known to be otherwise.
type attempt struct {
	caller password.Caller

	counts  []*backoff.Failures
	failing []backoff.Attempt // in the order of counts
}

// begin lets an address try a password of an account, or says with RATE_LIMITED how long it has to wait.
func (a *attempts) begin(ctx context.Context, address, account string) (begun *attempt, err error) {
	err = a.patiently(ctx, func() error {
		begun, err = a.tryBegin(address, account)
		return err
	})
	return begun, err
}

func (a *attempts) tryBegin(address, account string) (*attempt, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	clean := a.addresses.Clean(address)
	byAccount := a.accounts
	if clean {
		byAccount = a.strangers
	}
	if wait := max(a.addresses.Wait(address), a.hashes.Wait(address), byAccount.Wait(account)); wait > 0 {
		return nil, tooMany("Too many failed logins: wait before you try again.", wait)
	}
	a.hashes.Begin(address)
	return &attempt{
		caller:  password.Caller{Address: address, Doubtful: !clean},
		counts:  []*backoff.Failures{a.addresses, byAccount},
		failing: []backoff.Attempt{a.addresses.Begin(address), byAccount.Begin(account)},
	}, nil
}

// succeeded says that the password was right.
func (a *attempt) succeeded() {
	for i, failures := range a.counts {
		failures.TakeBack(a.failing[i])
	}
}

// undecided says that the password was not compared, for a reason that is ours. A
// client that hung up has learnt nothing and cost as much as one that waited.
func (a *attempt) undecided(ctx context.Context) {
	if ctx.Err() == nil {
		a.succeeded()
	}
}

// register lets an address register, or says with RATE_LIMITED how long it has to wait.
func (a *attempts) register(ctx context.Context, address string) (caller password.Caller, err error) {
	err = a.patiently(ctx, func() error {
		caller, err = a.tryRegister(address)
		return err
	})
	return caller, err
}

func (a *attempts) tryRegister(address string) (password.Caller, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if wait := max(a.joiners.Wait(address), a.hashes.Wait(address)); wait > 0 {
		return password.Caller{}, tooMany("Too many registrations from this address.", wait)
	}
	a.joiners.Begin(address)
	a.hashes.Begin(address)
	return password.Caller{Address: address, Doubtful: !a.addresses.Clean(address)}, nil
}

func tooMany(detail string, wait time.Duration) error {
	return &model.Error{Code: model.CodeRateLimited, Detail: detail, RetryAfter: wait}
}

package cache

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"seckill/internal/budget"
	"seckill/internal/poll"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// accountsEvery is how often changes are read: known within a second, though a reading takes half of it.
	accountsEvery = 8 * budget.Blink
	// maxChanges bounds the changed accounts in memory (15 MB). Each cost a hash, so only an attack makes that many.
	maxChanges  = 100_000
	maxAccounts = 1_000 // remembered as a whole: administrators
)

// AccountSource is where accounts are.
type AccountSource struct {
	ByID func(ctx context.Context, id string) (model.Account, error) // or NOT_FOUND
	// Changed lists accounts that were changed since an instant, the latest first.
	Changed func(ctx context.Context, since time.Time, limit int) ([]model.Account, error)
}

// Accounts is what one instance remembers of accounts, to check tokens. It knows all recent changes, so that no
// purchase asks the database. A single account, for an administrator's token, it remembers for less than a second.
type Accounts struct {
	source AccountSource
	lasts  time.Duration // how long a token may be older than a change
	log    *slog.Logger

	mu       sync.Mutex
	latest   time.Time // of the changes, on the database's clock
	changed  *lru.Cache[string, change]
	accounts *lru.Cache[string, account]
	asking   singleflight.Group
}

type change struct {
	at       time.Time
	version  int64
	disabled bool
	groups   *model.Groups
}

// account is an account as it was when it was asked for; nil: there is none.
type account struct {
	*model.Account

	asked time.Time
}

// NewAccounts remembers changes for as long as the tokens last that they end. Watch keeps it up to date.
func NewAccounts(source AccountSource, lasts time.Duration, log *slog.Logger) (*Accounts, error) {
	crowded := rate.Sometimes{Interval: budget.Survey}
	changed, err := lru.NewWithEvict(maxChanges, func(_ string, oldest change) {
		if time.Since(oldest.at) < lasts {
			crowded.Do(func() {
				log.Warn("too many accounts were changed: some tokens that a change has ended are accepted until they expire")
			})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of changed accounts: %w", err)
	}
	accounts, err := lru.New[string, account](maxAccounts)
	if err != nil {
		return nil, fmt.Errorf("make the account cache: %w", err)
	}
	return &Accounts{source: source, lasts: lasts, log: log, changed: changed, accounts: accounts}, nil
}

// Watch reads the changes until ctx ends. While the database is away nothing changes, and the known ones count.
func (a *Accounts) Watch(ctx context.Context) {
	var trouble telemetry.Trouble
	poll.Every(ctx, accountsEvery, func() {
		if err := a.Refresh(ctx); ctx.Err() == nil {
			trouble.Note(ctx, a.log, err, "changes of accounts cannot be read", "changes of accounts are read again")
		}
	})
}

// Refresh reads the changes once.
func (a *Accounts) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Work)
	defer cancel()
	a.mu.Lock()
	since := time.Now().Add(-a.lasts)
	if known := a.latest.Add(-budget.Survey); known.After(since) {
		since = known
	}
	a.mu.Unlock()
	changed, err := a.source.Changed(ctx, since, maxChanges)
	if err != nil {
		return fmt.Errorf("read the changes of accounts: %w", err)
	}
	for _, account := range slices.Backward(changed) { // those that were added first are forgotten first
		a.note(account)
	}
	return nil
}

// Note tells of a change that this instance has made.
func (a *Accounts) Note(changed model.Account) {
	a.note(changed)
	a.accounts.Remove(changed.ID)
}

func (a *Accounts) note(changed model.Account) {
	if changed.ChangedAt == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.changed.Peek(changed.ID); ok && known.at.After(*changed.ChangedAt) {
		return
	}
	a.changed.Add(changed.ID, change{
		at: *changed.ChangedAt, version: changed.Version, disabled: changed.Disabled, groups: &changed.Groups,
	})
	if changed.ChangedAt.After(a.latest) {
		a.latest = *changed.ChangedAt
	}
}

// Changed tells what is known of an account changed after a token's version, or disabled, and its groups; nil: no
// change, the token is right. A token without a version may be of the first one, by an instance that knew none.
func (a *Accounts) Changed(id string, version int64) (ended bool, groups *model.Groups) {
	change, ok := a.changed.Peek(id)
	return ok && (change.disabled || cmp.Or(version, 1) < change.version), change.groups
}

// Account returns an account at most maxAge old, not before a version. Calls share a reading. It caches NOT_FOUND.
func (a *Accounts) Account(ctx context.Context, id string, version int64) (model.Account, error) {
	oldest := time.Now().Add(-maxAge)
	known, ok := a.accounts.Get(id)
	if ok && known.asked.After(oldest) && (known.Account == nil || known.Version >= version) {
		return known.answer()
	}
	for range maxReadings { // one that was under way may have been asked too long ago
		read, err := a.ask(ctx, id)
		if err != nil {
			return model.Account{}, err
		}
		if read.asked.After(oldest) {
			return read.answer()
		}
	}
	return model.Account{}, model.Unavailable("The account could not be read in time.", nil)
}

func (a account) answer() (model.Account, error) {
	if a.Account == nil {
		return model.Account{}, model.NotFound("account")
	}
	return *a.Account, nil
}

func (a *Accounts) ask(ctx context.Context, id string) (account, error) {
	answer := a.asking.DoChan(id, func() (any, error) {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), budget.Work)
		defer cancel()
		read := account{asked: time.Now()}
		found, err := a.source.ByID(asking, id)
		switch {
		case err == nil:
			found.PasswordHash = "" // nobody needs it here
			read.Account = &found
		case model.CodeOf(err) != model.CodeNotFound:
			return account{}, err
		}
		a.accounts.Add(id, read)
		return read, nil
	})
	select {
	case result := <-answer:
		read, _ := result.Val.(account)
		return read, result.Err
	case <-ctx.Done():
		return account{}, ctx.Err()
	}
}

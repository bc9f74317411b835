package token

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/poll"
)

const (
	maxWaiting = 100  // requests wait for one reading; others come again, so that made-up key ids hold few
	maxWanted  = 1000 // unknown key ids between two readings; further ones come again, and are never called bad
)

// Issuer is another issuer whose tokens are accepted.
type Issuer struct {
	Name   string // the `iss` of its tokens, compared byte for byte
	Keys   string // where its JWK Set (RFC 7517) is: a URL (https, or http to this machine) or a file
	Admins bool   // it may name administrators
	// Audiences are whom its tokens may be for, instead of us. Without an audience `azp` and `client_id` count.
	Audiences []string
	Role      string // dotted path to the role, or to a list of roles; empty: `role`
	Groups    string // dotted path to a group, or to a list of groups; empty: `groups`
}

type issuer struct {
	Issuer // empty but for Admins: we

	keys atomic.Pointer[map[string]key] // by id; nil: they could not be read yet

	source  *source // nil: the keys are ours and do not change
	now     func() time.Time
	log     *slog.Logger
	waiting chan struct{} // has room for maxWaiting

	mu       sync.Mutex
	asked    time.Time     // when the last reading began that an unknown key id caused
	reading  chan struct{} // closed when the one under way ends; nil: there is none
	failures int           // of readings in a row
	document []byte        // what was read last
	// Hashed ids of unknown keys: wanted since the last reading, and those that it was to find, or found gone.
	seed           maphash.Seed
	wanted, absent map[uint64]struct{}
}

// key verifies signatures. Its algorithm is a property of the key.
type key struct {
	method   jwt.SigningMethod
	material any // of the type that the method wants
}

// newIssuer is another issuer, whose keys are not read yet.
func newIssuer(of Issuer, now func() time.Time, log *slog.Logger) (*issuer, error) {
	source, err := newSource(of.Keys)
	if err != nil {
		return nil, err
	}
	of.Role, of.Groups = cmp.Or(of.Role, "role"), cmp.Or(of.Groups, "groups")
	return &issuer{
		Issuer: of, source: source, now: now, waiting: make(chan struct{}, maxWaiting),
		log:  log.With(slog.String("issuer", of.Name), slog.String("keys", of.Keys)),
		seed: maphash.MakeSeed(), wanted: map[uint64]struct{}{}, absent: map[uint64]struct{}{},
	}, nil
}

// key finds the key with an id. An unknown one has the keys read again; only a later reading denies it.
func (i *issuer) key(ctx context.Context, id string) (key, error) {
	if found, ok := i.known(id); ok {
		return found, nil
	}
	if i.source == nil || id == "" && i.keys.Load() != nil {
		return key{}, invalid(UnknownKey, "its key id is missing or unknown")
	}
	asked := i.ask(ctx, id)
	if found, ok := i.known(id); ok {
		return found, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, absent := i.absent[i.hash(id)]; absent {
		return key{}, invalid(UnknownKey, "its key id %.100q is unknown", id)
	}
	later := max(i.asked.Add(budget.Step).Sub(i.now()), time.Second)
	return key{}, &InvalidError{
		Reason: Unread, RetryAfter: later,
		cause: fmt.Errorf("its issuer's keys have to be read first: %w", asked),
	}
}

func (i *issuer) hash(id string) uint64 { return maphash.String(i.seed, id) }

func (i *issuer) known(id string) (key, bool) {
	keys := i.keys.Load()
	if keys == nil {
		return key{}, false
	}
	found, ok := (*keys)[id]
	return found, ok
}

// ask has the keys read for an unknown id, at most once in budget.Step, and waits for the reading that is under way,
// which goes on when the caller leaves. The error says why the id may still be unknown.
func (i *issuer) ask(ctx context.Context, id string) error {
	reading := i.want(context.WithoutCancel(ctx), i.hash(id))
	if reading == nil {
		return errors.New("they were read a moment ago")
	}
	select {
	case i.waiting <- struct{}{}:
		defer func() { <-i.waiting }()
	default:
		return errors.New("too many wait for them")
	}
	select {
	case <-reading:
		return errors.New("they could not be read, or that had begun before")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// want remembers an unknown id for the next reading, and begins it if due. It returns the end of the one under way.
func (i *issuer) want(ctx context.Context, id uint64) <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	due := i.reading == nil && (i.asked.IsZero() || i.now().Sub(i.asked) >= budget.Step)
	if due || len(i.wanted) < maxWanted {
		i.wanted[id] = struct{}{}
	}
	if due {
		i.asked = i.now()
		i.begin(ctx)
	}
	return i.reading
}

// begin starts a reading, unless one is under way. Its caller holds the mutex.
func (i *issuer) begin(ctx context.Context) {
	if i.reading != nil {
		return
	}
	i.reading = make(chan struct{})
	sought := i.wanted
	i.wanted = map[uint64]struct{}{}
	go i.read(ctx, sought)
}

// read reads the keys once. When that fails the last good ones are kept.
func (i *issuer) read(ctx context.Context, sought map[uint64]struct{}) {
	ctx, cancel := context.WithTimeout(ctx, budget.Answer)
	defer cancel()
	before := i.keys.Load()
	document, err := i.source.read(ctx)
	if err == nil && !bytes.Equal(document, i.document) { // only one reading is under way
		err = i.learn(ctx, document)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil {
		i.absent = sought // those that are there were found before anybody looks here
		if before != nil {
			for id := range *before { // which may be gone
				i.absent[i.hash(id)] = struct{}{}
			}
		}
	}
	switch {
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		i.failures++
		i.log.WarnContext(ctx, "the keys of a token issuer cannot be read; those known before stay valid",
			slog.Any("error", err))
	case err == nil && i.failures > 0:
		i.failures = 0
		i.log.InfoContext(ctx, "the keys of a token issuer can be read again")
	}
	close(i.reading)
	i.reading = nil
}

func (i *issuer) learn(ctx context.Context, document []byte) error {
	known, refused, err := parseKeys(document)
	if err != nil {
		return err
	}
	i.keys.Store(&known)
	i.document = document
	i.log.InfoContext(ctx, "keys of a token issuer", slog.Any("kids", slices.Sorted(maps.Keys(known))))
	for _, why := range refused {
		i.log.WarnContext(ctx, "a key of a token issuer is not used", slog.Any("reason", why))
	}
	return nil
}

func (i *issuer) run(ctx context.Context) {
	for ctx.Err() == nil {
		i.mu.Lock()
		i.begin(ctx)
		reading := i.reading
		i.mu.Unlock()
		<-reading
		poll.Pause(ctx, i.pause())
	}
}

// pause is how long to rest between two readings. A source that is away is tried soon, and then less and less often.
func (i *issuer) pause() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failures == 0 {
		return i.source.every
	}
	return backoff.Doubled(budget.Step, i.source.every, i.failures-1)
}

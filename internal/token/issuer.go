package token

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/poll"
)

const (
	// askEvery is the least time between two readings of an issuer's keys that
	// unknown key ids cause: anybody can write an unknown key id into a token, and
	// the issuer must not feel it. It is also the first pause after a failure.
	askEvery = 10 * time.Second
	// maxWaiting is how many requests may wait for one reading. The rest is told to
	// come again, so that slow keys and made-up key ids hold few requests.
	maxWaiting = 100
	// readTimeout bounds one reading: it is a small document.
	readTimeout = 5 * time.Second
)

// Issuer is another issuer whose tokens are accepted.
type Issuer struct {
	Name   string // the `iss` of its tokens, compared byte for byte
	Keys   string // where its JWK Set (RFC 7517) is: a URL (https, or http to this machine) or a file
	Admins bool   // it may name administrators
}

// issuer is who signs tokens: we or another one.
type issuer struct {
	name   string // empty: we
	admins bool
	keys   atomic.Pointer[map[string]key] // by id; nil: they could not be read yet

	source  source // nil: the keys are ours and do not change
	now     func() time.Time
	log     *slog.Logger
	waiting chan struct{} // has room for maxWaiting

	mu       sync.Mutex
	tried    time.Time     // when the last reading began
	reading  chan struct{} // closed when the one under way ends; nil: there is none
	failures int           // of readings in a row
	document []byte        // what was read last
}

// key verifies signatures. Its algorithm is a property of the key.
type key struct {
	method   jwt.SigningMethod
	material any // of the type that the method wants
}

// ourselves is the issuer of our own tokens.
func ourselves(keys []Key) (*issuer, error) {
	if len(keys) == 0 {
		return nil, errors.New("a token authority needs at least one key")
	}
	known := make(map[string]key, len(keys))
	for _, k := range keys {
		_, twice := known[k.ID]
		switch {
		case k.ID == "":
			return nil, errors.New("a token key needs an id")
		case twice:
			return nil, fmt.Errorf("two token keys have the id %q", k.ID)
		case len(k.Secret) < MinSecret:
			return nil, fmt.Errorf("the secret of token key %q has %d bytes and needs at least %d", k.ID, len(k.Secret), MinSecret)
		}
		known[k.ID] = key{method: newHS256(k.Secret)}
	}
	ours := &issuer{admins: true}
	ours.keys.Store(&known)
	return ours, nil
}

// newIssuer is another issuer, whose keys are not read yet.
func newIssuer(of Issuer, now func() time.Time, log *slog.Logger) (*issuer, error) {
	source, err := newSource(of.Keys)
	if err != nil {
		return nil, err
	}
	return &issuer{
		name: of.Name, admins: of.Admins, source: source, now: now, waiting: make(chan struct{}, maxWaiting),
		log: log.With(slog.String("issuer", of.Name), slog.String("keys", of.Keys)),
	}, nil
}

// key finds the key with an id. For one that is not known it lets the keys be
// read again, so that a new key needs no restart.
func (i *issuer) key(ctx context.Context, id string) (key, error) {
	if found, ok := i.known(id); ok {
		return found, nil
	}
	if i.source != nil && id != "" {
		if err := i.ask(ctx); err != nil {
			return key{}, err
		}
		if found, ok := i.known(id); ok {
			return found, nil
		}
		if i.keys.Load() == nil {
			return key{}, ErrNoKeys
		}
	}
	return key{}, errors.New("its key id is missing or unknown")
}

func (i *issuer) known(id string) (key, bool) {
	keys := i.keys.Load()
	if keys == nil {
		return key{}, false
	}
	found, ok := (*keys)[id]
	return found, ok
}

// ask has the keys read, unless that was tried within askEvery, and waits for
// the reading that is under way. It is not the caller's alone: it goes on when
// the caller leaves.
func (i *issuer) ask(ctx context.Context) error {
	reading := i.begin(context.WithoutCancel(ctx), askEvery)
	if reading == nil {
		return nil
	}
	select {
	case i.waiting <- struct{}{}:
		defer func() { <-i.waiting }()
	default:
		return fmt.Errorf("%w: too many wait for them", ErrNoKeys)
	}
	select {
	case <-reading:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrNoKeys, context.Cause(ctx))
	}
}

// begin starts a reading, unless one is under way or the last began less than
// pause ago. It returns what is closed at the end of the one under way, or nil.
func (i *issuer) begin(ctx context.Context, pause time.Duration) <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reading == nil {
		now := i.now()
		if !i.tried.IsZero() && now.Sub(i.tried) < pause {
			return nil
		}
		i.tried, i.reading = now, make(chan struct{})
		go i.read(ctx)
	}
	return i.reading
}

// read reads the keys once. When that fails the last good ones are kept.
func (i *issuer) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	document, err := i.source.read(ctx)
	if err == nil && !bytes.Equal(document, i.document) { // only one reading is under way
		err = i.learn(ctx, document)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		i.failures++
		i.log.WarnContext(ctx, "the keys of a token issuer cannot be read; those known before stay valid", slog.Any("error", err))
	case err == nil && i.failures > 0:
		i.failures = 0
		i.log.InfoContext(ctx, "the keys of a token issuer can be read again")
	}
	close(i.reading)
	i.reading = nil
}

// learn takes the keys of a new document.
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

// run reads the keys again and again until ctx ends.
func (i *issuer) run(ctx context.Context) {
	for ctx.Err() == nil {
		<-i.begin(ctx, 0)
		poll.Pause(ctx, i.pause())
	}
}

// pause is how long to rest between two readings. A source that is away is
// tried soon, and then less and less often.
func (i *issuer) pause() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	every := i.source.every()
	if i.failures == 0 {
		return every
	}
	return min(askEvery<<min(i.failures-1, 10), every)
}

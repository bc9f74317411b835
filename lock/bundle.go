package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// bundle is what a lease of several parts stands on.
type bundle struct {
	q     *Quorum
	lease *Lease
	stop  context.CancelFunc // of the parts that have not answered

	mu       sync.Mutex
	parts    []*Lease     // by part; nil when not held
	held     int          // parts that are held and have not ended
	busy     map[int]bool // parts that are held: by another owner (true), or by a call of this one
	failed   []error      // of parts that could not be asked
	answered int
	changed  bell   // rung by every answer
	began    bool   // enough were held
	over     bool   // given up, unlocked or lost: a part that joins now is given back
	number   int64  // the token
	unfence  func() // forgets it
}

func (b *bundle) answer(i int, part *Lease, err error) {
	b.mu.Lock()
	b.answered++
	late := false
	switch {
	case err == nil && b.over:
		late = true
	case err == nil:
		b.parts[i] = part
		b.held++
	case errors.Is(err, ErrHeld):
		b.busy[i] = !errors.Is(err, errTurn)
	default:
		b.failed = append(b.failed, err)
	}
	last := b.answered == len(b.parts)
	b.mu.Unlock()
	if last {
		b.stop()
	}
	b.changed.ring()
	switch {
	case late:
		_ = part.Unlock() // bounded; what fails goes on in the background
	case err == nil:
		part.notify(b.ended)
	}
}

// decided waits until it is clear whether enough parts are held.
func (b *bundle) decided(ctx context.Context) error {
	for {
		b.mu.Lock()
		spare := len(b.parts) - b.q.need
		lost := b.answered - b.held
		var err error
		switch {
		case len(b.failed) > spare:
			err = errors.Join(b.failed...)
		case lost > spare && (len(b.busy) > spare || b.answered == len(b.parts)):
			// Until then how many fail may still decide between the two errors.
			err = ErrHeld
		}
		enough := b.held >= b.q.need
		b.began = enough
		b.mu.Unlock()
		switch {
		case enough:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-b.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// allAnswered waits until every part has answered, but no longer than patience.
func (b *bundle) allAnswered(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ctx.Err() == nil {
		b.mu.Lock()
		all := b.answered == len(b.parts)
		b.mu.Unlock()
		if all {
			return
		}
		select {
		case <-b.changed:
		case <-ctx.Done():
		}
	}
}

// ended is called when a part's lease has ended. When too few parts are left, the lock ends with the same cause.
func (b *bundle) ended(cause error) {
	b.mu.Lock()
	gone := false
	if !b.over {
		b.held--
		if gone = b.began && b.held < b.q.need; gone {
			b.over = true
			b.forget()
		}
	}
	b.mu.Unlock()
	if gone {
		b.lease.end(cause)
	}
}

// forget drops the token: the owner's next one is greater than those of the holders in between. Under b.mu.
func (b *bundle) forget() {
	if b.unfence != nil {
		b.unfence()
		b.unfence = nil
	}
}

// take ends the bundle and returns the parts that are to be given back.
func (b *bundle) take() (parts []*Lease, lost bool) {
	b.mu.Lock()
	lost = b.held < b.q.need
	b.over = true
	b.forget()
	b.mu.Unlock()
	return b.current(), lost // no part joins any more
}

// current returns the leases of the parts. The caller uses them without b.mu, because a part that ends takes it.
func (b *bundle) current() []*Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.parts), func(l *Lease) bool { return l == nil })
}

func each(parts []*Lease, do func(*Lease) error) []error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	return errs
}

// giveUp gives back every taken part on its own context; the caller's bounds only the wait. It returns what it found.
func (b *bundle) giveUp(ctx context.Context, bound time.Duration) vain {
	parts, _ := b.take()
	b.mu.Lock()
	v := vain{partly: len(parts) > 0, busy: maps.Clone(b.busy)}
	b.mu.Unlock()
	if !v.partly {
		return v
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), bound)
		defer cancel()
		each(parts, func(l *Lease) error { return l.UnlockContext(detached) })
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return v
}

// unlock gives back every part and reports failures; a lost part is no failure while enough were held.
func (b *bundle) unlock(ctx context.Context, l *Lease) error {
	parts, lost := b.take()
	l.end(ErrUnlocked)
	errs := each(parts, func(p *Lease) error { return p.UnlockContext(ctx) })
	var gone []error
	errs = slices.DeleteFunc(errs, func(err error) bool {
		if errors.Is(err, ErrLost) {
			gone = append(gone, err)
			return true
		}
		return false
	})
	if (lost || len(errs) < b.q.need) && !errors.Is(l.cause(), ErrClosed) {
		errs = append(append(errs, ErrLost), gone...)
	}
	return errors.Join(errs...)
}

func (b *bundle) extend(ctx context.Context, _ *Lease, d time.Duration) error {
	return b.most("extend", func(l *Lease) error { return l.Extend(ctx, d) })
}

// most calls do for the parts that are held; it must succeed for enough of them.
func (b *bundle) most(what string, do func(*Lease) error) error {
	parts := b.current()
	failed := slices.DeleteFunc(each(parts, do), func(err error) bool { return err == nil })
	if len(parts)-len(failed) < b.q.need {
		return fmt.Errorf("%s the lock %s: %w", what, b.q.name, errors.Join(failed...))
	}
	return nil
}

// validUntil is until when enough of the parts last that have not been lost.
func (b *bundle) validUntil() time.Time {
	var ends []time.Time
	for _, p := range b.current() {
		if p.cause() == nil {
			ends = append(ends, p.ValidUntil())
		}
	}
	if len(ends) < b.q.need {
		return time.Time{}
	}
	slices.SortFunc(ends, func(x, y time.Time) int { return y.Compare(x) })
	return ends[b.q.need-1]
}

// fence makes a token of the parts': the greatest, written back to so many that the next holder sees it.
func (b *bundle) fence(ctx context.Context, own *owner) error {
	key := b.q.key()
	token, err := own.fence(key, func() (int64, error) {
		var greatest int64
		for _, p := range b.current() {
			greatest = max(greatest, p.Token())
		}
		if greatest == 0 { // stores without tokens
			return 0, nil
		}
		return greatest, b.raise(ctx, greatest)
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number = token
	b.unfence = func() { own.unfence(key) }
	if b.over { // lost while the token was made
		b.forget()
	}
	return nil
}

func (b *bundle) token() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.number
}

func (b *bundle) raise(ctx context.Context, token int64) error {
	err := b.most("raise the token of", func(l *Lease) error { return l.hold.raise(ctx, token) })
	if err == nil {
		b.mu.Lock()
		b.number = max(b.number, token)
		b.mu.Unlock()
	}
	return err
}

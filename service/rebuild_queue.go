package service

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// maxRebuildQueue bounds the wishes of each urgency that wait; whatever is left
// out is asked for again by the reconciler's next look.
const maxRebuildQueue = 1024

// urgency orders the rebuilds after a loss.
type urgency int

const (
	asked  urgency = iota // a request was refused, or an operator waits
	onSale                // requests will come
	unasked
	urgencies
)

// rebuildWish is a wish that waits.
type rebuildWish struct {
	urgency urgency
	wrong   int64 // copies up to that epoch are wrong, whatever they look like
}

// Request asks for a rebuild behind the caller's back, if one is needed by the
// time it comes to its turn. What cannot be queued, or failed a moment ago, is
// left to the reconciler, which asks again.
func (r *Rebuilder) Request(voucherID string) { r.enqueue(voucherID, rebuildWish{urgency: asked}) }

// Replace is Request when the copy of an epoch is wrong, however it looks. A later
// finding of the same epoch causes no further rebuild.
func (r *Rebuilder) Replace(voucherID string, epoch int64) {
	r.enqueue(voucherID, rebuildWish{urgency: asked, wrong: epoch})
}

// Demand is Request whatever the copy looks like.
func (r *Rebuilder) Demand(voucherID string) { r.Replace(voucherID, anyEpoch) }

// Found is Request for a copy that nobody has asked for: those that somebody has
// come first, then those on sale.
func (r *Rebuilder) Found(voucherID string, selling bool) {
	wish := rebuildWish{urgency: unasked}
	if selling {
		wish.urgency = onSale
	}
	r.enqueue(voucherID, wish)
}

func (r *Rebuilder) enqueue(voucherID string, wish rebuildWish) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, busy := r.running[voucherID]; busy && wish.wrong == 0 {
		return
	}
	before, waits := r.waiting[voucherID]
	wish.wrong = max(wish.wrong, before.wrong)
	switch {
	case waits && wish.urgency >= before.urgency, waits && r.full(wish.urgency):
		r.waiting[voucherID] = rebuildWish{before.urgency, wish.wrong}
		return
	case !waits && (r.full(wish.urgency) || time.Now().Before(r.failures[voucherID].until)):
		return
	case !waits:
		r.ready <- struct{}{} // has room: fewer wait than it holds
	default: // one that is left in the queue would keep others out of it
		from := before.urgency
		r.queue[from] = slices.DeleteFunc(r.queue[from], func(id string) bool { return id == voucherID })
	}
	r.queue[wish.urgency] = append(r.queue[wish.urgency], voucherID)
	r.waiting[voucherID] = wish
}

func (r *Rebuilder) full(u urgency) bool { return len(r.queue[u]) >= maxRebuildQueue }

// next takes the most urgent wish; there is one.
func (r *Rebuilder) next() (voucherID string, wrong int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for u := range r.queue {
		if len(r.queue[u]) > 0 {
			id := r.queue[u][0]
			r.queue[u] = r.queue[u][1:]
			wish := r.waiting[id]
			delete(r.waiting, id)
			return id, wish.wrong
		}
	}
	return "", 0
}

// place is one of those at which rebuilds work; the zero place is that of a caller
// who waits for the one rebuild.
type place struct{ of *semaphore.Weighted }

// without waits for something with the place given up: what only waits, for its
// voucher's messages above all, must not keep other vouchers closed.
func (p place) without(ctx context.Context, wait func(context.Context) error) error {
	if p.of == nil {
		return wait(ctx)
	}
	p.of.Release(1)
	err := wait(ctx)
	// Also when the wait was canceled: whatever has a place works, and ends soon.
	_ = p.of.Acquire(context.WithoutCancel(ctx), 1)
	return err
}

// Run serves requests until ctx ends. A wish is picked when a place is free, so
// that what is most urgent by then comes first.
func (r *Rebuilder) Run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for r.places.Acquire(ctx, 1) == nil {
		select {
		case <-ctx.Done():
			r.places.Release(1)
			return
		case <-r.ready:
			id, wrong := r.next()
			serving.Go(func() {
				defer r.places.Release(1)
				r.serve(ctx, id, wrong)
			})
		}
	}
}

func (r *Rebuilder) serve(ctx context.Context, voucherID string, wrong int64) {
	err := r.rebuild(ctx, voucherID, wrong, place{r.places})
	if err != nil && !quiet(err) && ctx.Err() == nil {
		r.deps.Log.WarnContext(ctx, "a rebuild failed and will be tried again",
			slog.String("voucher_id", voucherID), slog.Any("error", err))
	}
}

package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/telemetry"
	"seckill/model"
	"seckill/service/persist"
)

const (
	relayPage     = 1000 // returned units are read at once
	maxRelayPages = 20   // of one pass; behind a full one it is the next voucher's turn
)

// outbox brings returned units to the hot copies, for a process that died or met a closed copy.
type outbox struct {
	deps Deps

	settler  *persist.Settler
	rebuilds *Rebuilder

	last    model.Release // the last one that the latest pass has read; used by one goroutine
	waiting int           // releases left in the outbox since it was last read from its beginning
}

// pass relays the outbox, vouchers taking turns, from where the last pass ended. A closed hot copy's releases stay.
func (o *outbox) pass(ctx context.Context) error {
	later := map[string]bool{}
	more := false // some voucher has releases left after its turn
	var failed []error
	for range maxRelayPages {
		page, err := o.deps.Database.After(ctx, o.last, relayPage)
		if err != nil {
			return errors.Join(append(failed, fmt.Errorf("read returned units: %w", err))...)
		}
		if len(page) == 0 {
			o.deps.Metrics.ReleasesWaiting.Set(float64(o.waiting))
			o.last, o.waiting = model.Release{}, 0
			if !more {
				break
			}
			more = false
			continue
		}
		o.last = page[len(page)-1]
		done, err := o.apply(ctx, page, later)
		failed = append(failed, err)
		if err := o.note(ctx, done); err != nil {
			return errors.Join(append(failed, err)...)
		}
		o.waiting += len(page) - len(done)
		if len(page) == relayPage {
			o.last.ID = math.MaxInt64
			more = more || !later[o.last.VoucherID]
		}
	}
	return errors.Join(failed...)
}

// of relays the releases of one voucher now, for a caller that waits for it.
func (o *outbox) of(ctx context.Context, voucherID string) error {
	page, err := o.deps.Database.After(ctx, model.Release{VoucherID: voucherID}, relayPage)
	if err != nil {
		return fmt.Errorf("read the returned units of voucher %s: %w", voucherID, err)
	}
	done, err := o.apply(ctx, page[:until(page, voucherID)], map[string]bool{})
	return errors.Join(err, o.note(ctx, done))
}

func (o *outbox) note(ctx context.Context, done []int64) error {
	if len(done) == 0 {
		return nil
	}
	if err := o.deps.Database.Done(ctx, done); err != nil {
		return fmt.Errorf("note %d returned units: %w", len(done), err)
	}
	failpoint.Reach(failpoint.AfterReleaseNoted)
	o.deps.Metrics.Reconciled.WithLabelValues("relayed").Add(float64(len(done)))
	return nil
}

// apply gives one page's units back, a voucher's at once, and returns the done. No silent copy holds up others.
func (o *outbox) apply(ctx context.Context, page []model.Release, later map[string]bool) ([]int64, error) {
	refused, err := o.deps.Database.Failed(ctx, each(page, func(r model.Release) string { return r.OrderID }))
	if err != nil {
		return nil, fmt.Errorf("look for the failed orders of returned units: %w", err)
	}
	var done []int64
	var failed []error
	for len(page) > 0 {
		id := page[0].VoucherID
		releases := page[:until(page, id)]
		if page = page[len(releases):]; later[id] {
			continue
		}
		applied, err := o.give(ctx, id, releases, refused)
		done, failed = append(done, applied...), append(failed, err)
		later[id] = len(applied) < len(releases)
	}
	return done, errors.Join(failed...)
}

// give returns a voucher's units to its hot copy. An order refused after admission keeps its mark: Settler.Replace.
func (o *outbox) give(
	ctx context.Context, voucherID string, releases []model.Release, refused map[string]model.Order,
) (done []int64, err error) {
	var units []model.Release
	var marks []model.Release
	for _, release := range releases {
		if row, ok := refused[release.OrderID]; ok && row.RefusedAfterAdmission() {
			marks = append(marks, release)
		} else {
			units = append(units, release)
		}
	}
	failpoint.Reach(failpoint.BeforeRelease)
	applied, err := o.deps.Hot.ReleaseAll(ctx, voucherID, units)
	failpoint.Reach(failpoint.AfterRelease)
	if applied && err == nil {
		done = idsOf(units)
		for _, release := range marks {
			row := refused[release.OrderID]
			row.ID, row.VoucherID, row.UserID = release.OrderID, voucherID, release.UserID
			if applied, err = o.settler.Replace(ctx, row); !applied || err != nil {
				break
			}
			done = append(done, release.ID)
		}
	}
	if err != nil {
		return done, fmt.Errorf("give %d units of voucher %s back: %w", len(units), voucherID, err)
	}
	if !applied {
		needless, err := o.retire(ctx, voucherID)
		if needless && err == nil {
			return idsOf(releases), nil
		}
		return done, err
	}
	return done, nil
}

func idsOf(releases []model.Release) []int64 {
	return each(releases, func(r model.Release) int64 { return r.ID })
}

func until(page []model.Release, voucherID string) int {
	end := slices.IndexFunc(page, func(r model.Release) bool { return r.VoucherID != voucherID })
	return cmp.Or(end+1, len(page)+1) - 1
}

func each[T, P any](all []T, part func(T) P) []P {
	parts := make([]P, len(all))
	for i, one := range all {
		parts[i] = part(one)
	}
	return parts
}

// retire reports whether a closed hot copy of an unsold voucher need not be told. It ends a rebuild under way.
func (o *outbox) retire(ctx context.Context, voucherID string) (bool, error) {
	found, err := o.deps.Database.GetMany(ctx, []string{voucherID})
	if err != nil {
		return false, fmt.Errorf("read voucher %s: %w", voucherID, err)
	}
	v, exists := found[voucherID]
	if !exists || v.NeedsCopy() {
		return false, nil
	}
	if v.Allocation == model.ByDraw {
		return true, nil // no hot copy will be loaded
	}
	return o.rebuilds.Retire(ctx, voucherID)
}

const (
	eventPage = 500 // events are read at once
)

// EventStore is the outbox of events: repository.Events.
type EventStore interface {
	Oldest(ctx context.Context, limit int) ([]model.Event, error)
	Forget(ctx context.Context, ids []int64) error
}

// EventStream is where events go.
type EventStream interface {
	// Publish returns how many of the first of the events are in the stream for certain.
	Publish(ctx context.Context, events []model.Event) (published int, err error)
}

// EventRelay publishes the outbox at least once, in order for each order: two relays would repeat events late.
type EventRelay struct {
	Store   EventStore
	Stream  EventStream
	Waiting telemetry.Gauge // seconds that the oldest event that could not be published has waited
}

// Run publishes events while this instance is elected, until ctx ends.
func (r *EventRelay) Run(ctx context.Context, by Elector) {
	e := election{Elector: by, job: "events", term: func(bool) { r.Waiting.Set(0) }, looks: []*look{
		{do: r.relayAll, pause: budget.Glance, rest: budget.Look, what: "events", done: "published"},
	}}
	e.run(ctx)
}

func (r *EventRelay) relayAll(ctx context.Context) (err error) {
	for more := true; more && err == nil && ctx.Err() == nil; {
		more, err = r.relay(ctx)
	}
	return err
}

func (r *EventRelay) relay(ctx context.Context) (more bool, err error) {
	events, err := r.Store.Oldest(ctx, eventPage)
	if err != nil || len(events) == 0 {
		return false, err
	}
	published, failed := r.Stream.Publish(ctx, events)
	waiting := time.Duration(0)
	if published < len(events) {
		waiting = time.Since(events[published].HappenedAt)
	}
	r.Waiting.Set(waiting.Seconds())
	failpoint.Reach(failpoint.AfterEventsPublished)
	gone := each(events[:published], func(event model.Event) int64 { return event.ID })
	if err := r.Store.Forget(ctx, gone); err != nil {
		return false, fmt.Errorf("note %d published events: %w", published, err)
	}
	return len(events) == eventPage, failed
}

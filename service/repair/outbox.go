package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"seckill/internal/backoff"
	"seckill/internal/budget"
	"seckill/internal/failpoint"
	"seckill/internal/poll"
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
	eventPage    = 500 // events are read at once
	longestReply = 255 // characters of a receiver's answer are kept

	// In the first budget.Settled of a rush sales go first: so many times as long as a step took it rests.
	lineShare, relayShare = 19, 1
)

// EventStore is the line of events, and how far each receiver has come: repository.Events.
type EventStore interface {
	Line(ctx context.Context) (more bool, err error)
	After(ctx context.Context, receiver string, limit int) (at model.EventReceiver, events []model.Event, err error)
	Advance(ctx context.Context, was, is model.EventReceiver) error
	Forget(ctx context.Context) (more bool, err error)
}

// EventStream is where events go.
type EventStream interface {
	// Publish returns how many of the first of the events are there for certain. It may stop without an error.
	Publish(ctx context.Context, events []model.Event) (published int, err error)
}

// EventReceiver is one of those that get every event.
type EventReceiver struct {
	Name   string // in the store
	Label  string // in the metrics
	Stream EventStream
	// Longest is the pause that failures in a row come to. With 0 they end the term: another instance may do better.
	Longest time.Duration

	resting bool // since the last look; used by one goroutine
}

// EventRelay publishes events at least once, in order for each order: two relays would repeat events late. No receiver
// waits for another.
type EventRelay struct {
	Job       string // of the election
	Store     EventStore
	Receivers []*EventReceiver
	Metrics   *telemetry.Events
}

// Run publishes events while this instance is elected, until ctx ends.
func (r *EventRelay) Run(ctx context.Context, by Elector) {
	looks := []*look{
		{do: exhaust(lineShare, r.Store.Line), pause: budget.Glance, rest: budget.Look, what: "new events", done: "lined up"},
		{do: exhaust(relayShare, r.Store.Forget), pause: budget.Look, rest: budget.Look, what: "old events", done: "deleted"},
	}
	for _, to := range r.Receivers {
		relay := func(ctx context.Context) (bool, error) { return r.relay(ctx, to) }
		looks = append(looks, &look{
			do: exhaust(relayShare, relay), pause: budget.Glance, rest: budget.Look, what: "events", done: "published",
		})
	}
	e := election{Elector: by, job: r.Job, looks: looks, term: func(bool) {
		for _, to := range r.Receivers {
			r.Metrics.Waiting.WithLabelValues(to.Label).Set(0)
		}
	}}
	e.run(ctx)
}

// exhaust repeats a step while there is more to do, with rests at first.
func exhaust(share int, step func(ctx context.Context) (more bool, err error)) func(ctx context.Context) error {
	return func(ctx context.Context) (err error) {
		first := time.Now()
		for more := true; more && err == nil && ctx.Err() == nil; {
			began := time.Now()
			if more, err = step(ctx); more && time.Since(first) < budget.Settled {
				poll.Pause(ctx, rest(time.Since(began), share, 0, budget.Look))
			}
		}
		return err
	}
}

// relay publishes the next events for a receiver. One that failed gets the first alone: the others would only repeat.
func (r *EventRelay) relay(ctx context.Context, to *EventReceiver) (more bool, err error) {
	limit := eventPage
	if to.resting {
		limit = 1
	}
	was, events, err := r.Store.After(ctx, to.Name, limit)
	if model.CodeOf(err) == model.CodeNotFound {
		return false, nil // the other look makes it
	}
	waiting := r.Metrics.Waiting.WithLabelValues(to.Label)
	if err != nil || len(events) == 0 {
		waiting.Set(0)
		return false, err
	}
	now := time.Now().UTC()
	if to.resting = was.Failures > 0; was.Stopped || was.NextAt != nil && now.Before(*was.NextAt) {
		waiting.Set(now.Sub(events[0].HappenedAt).Seconds())
		return false, nil
	}
	published, failed := to.Stream.Publish(ctx, events)
	failpoint.Reach(failpoint.AfterEventsPublished)
	is := was
	if is.Delivered += int64(published); published > 0 {
		is.Position, is.Failures, is.NextAt, is.Stopped = events[published-1].Position, 0, nil, false
	}
	outcomes := r.Metrics.Sent.MustCurryWith(map[string]string{"receiver": to.Label})
	outcomes.WithLabelValues("delivered").Add(float64(published))
	switch now = time.Now().UTC(); {
	case failed == nil:
		is.LastAnswer, is.AnsweredAt = "2xx", &now
	case ctx.Err() == nil:
		outcomes.WithLabelValues("failed").Inc()
		text := []rune(failed.Error())
		is.LastAnswer, is.AnsweredAt = string(text[:min(len(text), longestReply)]), &now
		is.Stopped = errors.Is(failed, model.ErrReceiverGone)
		if is.Failures++; to.Longest > 0 {
			pause := backoff.Doubled(budget.Look, to.Longest, int(is.Failures-1))
			is.NextAt = new(now.Add(pause - rand.N(pause/4))) //nolint:gosec // spreads the load, guards nothing
		}
	}
	to.resting = is.Failures > 0
	waiting.Set(0)
	if published < len(events) {
		waiting.Set(now.Sub(events[published].HappenedAt).Seconds())
	}
	// What was published is published, also when the term has ended meanwhile.
	if err := r.Store.Advance(context.WithoutCancel(ctx), was, is); err != nil {
		return false, fmt.Errorf("note %d published events: %w", published, err)
	}
	if failed != nil && to.Longest > 0 {
		return false, nil
	}
	return failed == nil && published > 0, failed
}

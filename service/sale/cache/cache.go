// Package cache answers most requests of a flash sale from an instance's voucher entries, and knows ended tokens.
package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"seckill/internal/budget"
	"seckill/internal/lane"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// maxAge bounds an entry's age: changes are obeyed within a second even when every message about them was lost.
	maxAge        = 900 * time.Millisecond
	maxEntries    = 10_000 // bounds the memory; far more vouchers than are on sale at once
	maxReadBatch  = 500    // vouchers are read by one query
	readers       = 2      // query at once; further reads gather behind them
	maxEmptyPages = 5      // of a list are read for one answer, then empty with a cursor: no rare phase costs more
	maxReadings   = 2      // for one request: a reading under way may be too old for it, the next one is not
)

// Vouchers are this instance's cache entries of vouchers. Concurrent reads share one query.
type Vouchers struct {
	*source

	// reader reads vouchers for entries, with a group for each server of hot copies, as views has.
	reader  *lane.Keyed[string, reading]
	views   *lane.Keyed[string, reading] // reads vouchers to be shown
	slots   *lru.Cache[string, *slot]
	loading singleflight.Group
	jobs    sync.WaitGroup
	closing chan struct{}
	deaf    atomic.Bool // messages about changes are being lost
	metrics *telemetry.Metrics
}

type slot struct {
	entry      atomic.Pointer[entry]
	dropped    atomic.Pointer[time.Time] // entries asked for before this time are void
	returned   atomic.Pointer[time.Time] // likewise, if they show nothing left
	refreshing atomic.Bool

	buyers  atomic.Pointer[buyers] // as they were last read
	reading atomic.Bool            // the buyers are being read, or were a moment ago
}

// New makes an empty cache; Close ends its readers. It reads vouchers from the hot copies, in the order mode async, and
// from the database where those are closed, or nil.
func New(db Database, hot HotCopies, metrics *telemetry.Metrics, log *slog.Logger) (*Vouchers, error) {
	node := func(string) string { return "" }
	if hot != nil {
		node = hot.Node
	}
	slots, err := lru.New[string, *slot](maxEntries)
	if err != nil {
		return nil, fmt.Errorf("make the voucher cache: %w", err)
	}
	options := lane.Options{Writers: readers, MaxBatch: maxReadBatch, MaxQueue: maxEntries, Timeout: budget.Work}
	c := &Vouchers{
		source: &source{db: db, hot: hot, log: log}, slots: slots, closing: make(chan struct{}), metrics: metrics,
	}
	c.reader, c.views = lane.NewKeyed(node, c.entries, options), lane.NewKeyed(node, c.shown, options)
	return c, nil
}

// Close waits for the readings under way, or cancels them when ctx ends. It must not be called twice.
func (c *Vouchers) Close(ctx context.Context) {
	close(c.closing)
	c.reader.Close(ctx)
	c.views.Close(ctx)
	c.jobs.Wait()
}

// Read returns a voucher as it is now: its query is sent after the call, and shared with calls of that time.
func (c *Vouchers) Read(ctx context.Context, id string) (model.Voucher, error) {
	v, _, err := readBy(ctx, c.views, id)
	return v, err
}

// Remaining is what is left of a voucher, read as Read does. model.ErrCopyClosed: a closed copy knows nothing.
func (c *Vouchers) Remaining(ctx context.Context, id string) (int64, error) {
	v, closed, err := readBy(ctx, c.reader, id)
	if err == nil && closed {
		err = model.ErrCopyClosed
	}
	return v.Remaining, err
}

func readBy(
	ctx context.Context, reader *lane.Keyed[string, reading], id string,
) (v model.Voucher, closed bool, err error) {
	read, err := reader.Do(ctx, id)
	if err = errors.Join(err, read.err); err != nil {
		return v, false, lane.Undone("The voucher could not be read in time.", err)
	}
	if read.voucher == nil {
		return v, false, model.NotFound("voucher")
	}
	return *read.voucher, read.closed, nil
}

// List returns one page of vouchers with what is left of them, newest first; list reads a page from the database.
func (c *Vouchers) List(
	ctx context.Context, q model.VoucherQuery,
	list func(context.Context, model.VoucherQuery) (model.VoucherPage, error),
) (model.VoucherPage, error) {
	phase := q.Phase
	if c.hot != nil && (q.Phase == model.PhaseLive || q.Phase == model.PhaseSoldOut) {
		q.Phase, q.OnSale = "", true // only the hot copy knows in which of the two phases a voucher is
	}
	for n := 1; ; n++ {
		page, err := list(ctx, q)
		if err != nil {
			return model.VoucherPage{}, err
		}
		page.Items = c.sold(ctx, page.Items, phase)
		if len(page.Items) > 0 || page.NextCursor == "" || n == maxEmptyPages {
			return page, nil
		}
		q.Cursor = page.NextCursor // an empty page is of little use while more follow
	}
}

// Shown is one voucher with what is left of it.
func (c *Vouchers) Shown(ctx context.Context, v model.Voucher) model.Voucher {
	return c.sold(ctx, []model.Voucher{v}, "")[0]
}

// Drop voids the entry of a voucher: a request from now on gets a reading that began after now.
func (c *Vouchers) Drop(id string) {
	if s, ok := c.slots.Get(id); ok {
		now := time.Now()
		s.dropped.Store(&now)
	}
}

// Returned voids an entry that shows nothing left: a unit came back. Others stay: canceling costs no other buyer.
func (c *Vouchers) Returned(id string) {
	if s, ok := c.slots.Get(id); ok {
		now := time.Now()
		s.returned.Store(&now)
	}
}

// Deaf says that messages about changes are being lost, until DropAll. Until then only a reading begun after a request
// answers SOLD_OUT: the user may have seen a unit come back elsewhere.
func (c *Vouchers) Deaf() { c.deaf.Store(true) }

// DropAll voids every entry: messages about changes may have been missed, and are heard from now on.
func (c *Vouchers) DropAll() {
	c.deaf.Store(false)
	for _, id := range c.slots.Keys() {
		c.Drop(id)
	}
}

// SoldOut voids an entry that still shows units left, so that the next requests are answered from a new one.
func (c *Vouchers) SoldOut(id string) {
	if c.latest(id, func(held *entry) bool { return held.voucher.Remaining > 0 }) {
		c.Drop(id)
	}
}

// Closed voids an entry that still shows the hot copy open.
func (c *Vouchers) Closed(id string) {
	if c.latest(id, func(held *entry) bool { return !held.closed }) {
		c.Drop(id)
	}
}

// Refusal answers a purchase from the entry. Nil: go on; model.ErrEntry: a draw; model.ErrCopyClosed: a closed copy.
func (c *Vouchers) Refusal(ctx context.Context, userID, id string, groups ...string) error {
	held, err := c.entry(ctx, id)
	if err != nil {
		return err
	}
	return c.refusal(held, userID, groups, time.Now())
}

// Known is Refusal where the cache entry is there and fresh enough. It reports whether that is so.
func (c *Vouchers) Known(userID, id string, groups ...string) (known bool, refusal error) {
	now := time.Now()
	held := c.held(id, c.slot(id), now)
	if held == nil {
		return false, nil
	}
	return true, c.refusal(held, userID, groups, now)
}

// Early reports whether a user of such groups may begin early, by the latest entry. Nobody without a group may.
func (c *Vouchers) Early(id string, groups []string) bool {
	return len(groups) > 0 && c.latest(id, func(held *entry) bool { return held.voucher.Early.Includes(groups) })
}

// Waitlist reports whether users may wait for a unit of a voucher, as the latest entry says.
func (c *Vouchers) Waitlist(id string) bool {
	return c.latest(id, func(held *entry) bool { return held.voucher.Waitlist })
}

// latest reports what the latest entry of a voucher says; false without one.
func (c *Vouchers) latest(id string, says func(held *entry) bool) bool {
	s, ok := c.slots.Peek(id)
	if !ok {
		return false
	}
	held := s.entry.Load()
	return held != nil && says(held)
}

func (c *Vouchers) refusal(held *entry, userID string, groups []string, now time.Time) error {
	err := held.refusal(userID, now, groups...)
	if err != nil && !errors.Is(err, model.ErrEntry) {
		c.metrics.Local.Inc()
	}
	return err
}

// held returns the held entry if it is fresh enough to answer from, and has it read anew before it is not.
func (c *Vouchers) held(id string, s *slot, now time.Time) *entry {
	held := s.entry.Load()
	if held == nil || !c.usable(s, held, now) {
		return nil
	}
	c.metrics.Hit.Inc()
	if now.Sub(held.asked) > budget.Glance {
		c.refresh(id, s)
	}
	return held
}

func (c *Vouchers) entry(ctx context.Context, id string) (*entry, error) {
	s := c.slot(id)
	now := time.Now()
	if held := c.held(id, s, now); held != nil { //nolint:contextcheck // no request waits for it to be read anew
		return held, nil
	}
	c.metrics.Miss.Inc()
	for range maxReadings {
		select {
		case result := <-c.load(id, s): //nolint:contextcheck // it is shared by all who wait
			if result.Err != nil {
				return nil, lane.Undone("The voucher could not be read in time.", result.Err)
			}
			// A reading that began after the request came is as new as the request, however fast changes follow.
			held, ok := result.Val.(*entry)
			if ok && (!held.asked.Before(now) || c.usable(s, held, time.Now())) {
				return held, nil
			}
		case <-ctx.Done():
			return nil, lane.Undone("The voucher could not be read in time.", ctx.Err())
		}
	}
	return nil, model.Unavailable("The voucher could not be read in time.", nil)
}

func (c *Vouchers) slot(id string) *slot {
	if s, ok := c.slots.Get(id); ok {
		return s
	}
	s := &slot{}
	if before, ok, _ := c.slots.PeekOrAdd(id, s); ok {
		return before
	}
	return s
}

func (c *Vouchers) usable(s *slot, held *entry, now time.Time) bool {
	return now.Sub(held.asked) < maxAge && !held.before(s.dropped.Load()) &&
		(held.voucher.Remaining > 0 || !held.before(s.returned.Load()) && (!c.deaf.Load() || !held.soldOut()))
}

func (c *Vouchers) refresh(id string, s *slot) {
	if !s.refreshing.CompareAndSwap(false, true) {
		return
	}
	c.jobs.Go(func() {
		defer s.refreshing.Store(false)
		<-c.load(id, s)
	})
}

// load reads one voucher into its entry, and answers all who wait. Their slot may be another by now.
func (c *Vouchers) load(id string, s *slot) <-chan singleflight.Result {
	return c.loading.DoChan(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), budget.Work)
		defer cancel()
		fetched, err := c.fetch(ctx, id, s)
		if err != nil {
			return nil, err
		}
		s.entry.Store(fetched)
		return fetched, nil
	})
}

func (c *Vouchers) fetch(ctx context.Context, id string, s *slot) (*entry, error) {
	asked := time.Now()
	read, err := c.reader.Do(ctx, id)
	if err = errors.Join(err, read.err); err != nil {
		return nil, err
	}
	fetched := &entry{asked: asked, told: time.Now(), closed: read.closed}
	if read.voucher == nil {
		if before := s.entry.Load(); before != nil && before.missing == nil {
			// Nobody deletes a voucher: the database is incomplete, for example while a dump is loaded.
			return nil, model.Unavailable("The voucher cannot be read now.",
				errors.New("it is in the database no longer"))
		}
		fetched.missing = model.NotFound("voucher")
		return fetched, nil
	}
	fetched.voucher = *read.voucher
	if fetched.soldOut() {
		fetched.buyers = c.buyersOf(s, fetched.voucher) //nolint:contextcheck // they may be read behind the requests' backs
	}
	return fetched, nil
}

type entry struct {
	voucher model.Voucher // its ServerTime is the clock that decides the window, at the reading
	missing error         // NOT_FOUND: the voucher did not exist
	asked   time.Time     // before the query was sent, on this machine's monotonic clock
	told    time.Time     // after its answer had come
	buyers  *buyers       // of a sold-out voucher; nil while they are not known
	closed  bool          // its hot copy is closed; the voucher is the database's
}

// before reports whether the reading may have missed what happened at a time; nil is never.
func (e *entry) before(at *time.Time) bool { return at != nil && !e.asked.After(*at) }

// soldOut reports whether the sale was on, and nothing left, at the reading.
func (e *entry) soldOut() bool {
	return !e.closed && e.voucher.Remaining <= 0 && e.voucher.Allocation != model.ByDraw &&
		e.voucher.OnSale(e.voucher.ServerTime)
}

// refusal answers what needs no server: nil: ask the seller; model.ErrEntry: ask the draw; model.ErrCopyClosed: closed.
//
// This instance's clock may be minutes off, so the time is the server's at the reading plus what has passed since. The
// reading was between asked and told: within that margin at the window's edges, the seller decides.
func (e *entry) refusal(userID string, now time.Time, groups ...string) error {
	if e.missing != nil {
		return e.missing
	}
	voucher, refused := e.voucher.For(groups)
	if refused != nil {
		return refused
	}
	earliest := voucher.ServerTime.Add(now.Sub(e.told))
	latest := voucher.ServerTime.Add(now.Sub(e.asked))
	first, last := voucher.Refusal(earliest), voucher.Refusal(latest)
	if first != nil && last != nil && first.Code == last.Code {
		return last
	}
	if e.voucher.Allocation == model.ByDraw {
		return model.ErrEntry // also within the margin
	}
	if first != nil || last != nil {
		return nil //nolint:nilerr // within the margin: only the seller can tell
	}
	if e.closed {
		return model.ErrCopyClosed // also when nothing remains: units may have come back
	}
	if e.voucher.Remaining <= 0 && e.buyers != nil && !e.buyers.filter.TestString(userID) {
		return model.SoldOut()
	}
	return nil
}

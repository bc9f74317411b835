package service

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

	"seckill/internal/batch"
	"seckill/internal/telemetry"
	"seckill/model"
)

const (
	// copyMaxAge is how old a copy may get before it is no longer answered
	// from: a restock, a pause or a moved window is obeyed within one second
	// even when every message about it was lost, so an answer must be on its
	// way a little earlier than that.
	copyMaxAge = 900 * time.Millisecond
	// copyRefreshAge is when a copy that is in use is read anew behind the
	// requests' backs, so that none of them waits for the database.
	copyRefreshAge = 300 * time.Millisecond
	// maxCopies bounds the memory; far more vouchers than are on sale at once.
	maxCopies = 10_000
	// readTimeout bounds one reading. It is what a request may
	// take in all: a database that is slow now is no reason to give up earlier.
	readTimeout = placeBudget
	// maxReadBatch vouchers are read by one query.
	maxReadBatch = 500
	// readers query at once; further reads gather behind them.
	readers = 2
	// maxReadings is how often a reading that was overtaken by a change is
	// repeated before the request is told to come again.
	maxReadings = 3
)

// VoucherCache keeps this instance's copies of vouchers: most of a flash
// sale's traffic is answered from them. Concurrent reads share one query.
type VoucherCache struct {
	source  copySource
	reader  *batch.Group[string, reading] // for copies
	views   *batch.Group[string, reading] // for people
	slots   *lru.Cache[string, *slot]
	loading singleflight.Group
	jobs    sync.WaitGroup
	closing chan struct{}
	metrics *telemetry.Metrics
	log     *slog.Logger
}

// slot holds the copy of one voucher.
type slot struct {
	held       atomic.Pointer[copyOf]
	dropped    atomic.Pointer[time.Time] // copies asked for before then are void
	refreshing atomic.Bool

	buyers  atomic.Pointer[buyers] // as they were last read
	reading atomic.Bool            // they are being read, or were a moment ago
}

// NewVoucherCache makes an empty cache of what the database sells; Close ends
// its readers.
func NewVoucherCache(
	vouchers VoucherReader, buyers BuyerStore, metrics *telemetry.Metrics, log *slog.Logger,
) (*VoucherCache, error) {
	return newVoucherCache(tableSource{vouchers, buyers}, metrics, log)
}

// NewHotVoucherCache makes an empty cache of what hot copies sell: vouchers are
// read from them, and from the database where they are closed.
func NewHotVoucherCache(
	vouchers VoucherReader, hot HotReader, metrics *telemetry.Metrics, log *slog.Logger,
) (*VoucherCache, error) {
	return newVoucherCache(&hotSource{vouchers: vouchers, hot: hot, log: log}, metrics, log)
}

func newVoucherCache(source copySource, metrics *telemetry.Metrics, log *slog.Logger) (*VoucherCache, error) {
	slots, err := lru.New[string, *slot](maxCopies)
	if err != nil {
		return nil, fmt.Errorf("make the voucher cache: %w", err)
	}
	options := batch.Options{Writers: readers, MaxBatch: maxReadBatch, MaxQueue: maxCopies, Timeout: readTimeout}
	c := &VoucherCache{
		source:  source,
		slots:   slots,
		closing: make(chan struct{}),
		metrics: metrics,
		log:     log,
		reader:  batch.New(source.copies, options),
	}
	c.views = c.reader
	if source, differ := source.(viewSource); differ {
		c.views = batch.New(source.views, options)
	}
	return c, nil
}

// Close waits for the readings under way, or cancels them when ctx ends. It
// must not be called twice.
func (c *VoucherCache) Close(ctx context.Context) {
	close(c.closing)
	c.reader.Close(ctx)
	c.views.Close(ctx)
	c.jobs.Wait()
}

// Read returns a voucher as it is now, never a copy: the query was sent after
// Read was called, but is shared with others who asked meanwhile.
func (c *VoucherCache) Read(ctx context.Context, id string) (model.Voucher, error) {
	read, err := c.views.Do(ctx, id)
	if err = errors.Join(err, read.err); err != nil {
		return model.Voucher{}, undone("The voucher could not be read in time.", err)
	}
	if read.voucher == nil {
		return model.Voucher{}, model.NotFound("voucher")
	}
	return *read.voucher, nil
}

// Drop voids the copy of a voucher: whoever asks from now on gets a reading
// that began after now.
func (c *VoucherCache) Drop(id string) {
	if s, ok := c.slots.Get(id); ok {
		now := time.Now()
		s.dropped.Store(&now)
	}
}

// DropAll voids every copy: messages about changes may have been missed.
func (c *VoucherCache) DropAll() {
	for _, id := range c.slots.Keys() {
		c.Drop(id)
	}
}

// soldOut voids a copy that does not know yet that nothing is left, so that
// whoever asks next is told from memory.
func (c *VoucherCache) soldOut(id string) {
	c.dropIf(id, func(held *copyOf) bool { return held.voucher.Remaining > 0 })
}

// notOpen voids a copy that does not know yet that the hot copy is closed.
func (c *VoucherCache) notOpen(id string) {
	c.dropIf(id, func(held *copyOf) bool { return !held.closed })
}

func (c *VoucherCache) dropIf(id string, outdated func(held *copyOf) bool) {
	if s, ok := c.slots.Peek(id); ok {
		if held := s.held.Load(); held != nil && outdated(held) {
			c.Drop(id)
		}
	}
}

// copy returns a copy that is fresh enough to answer from.
func (c *VoucherCache) copy(ctx context.Context, id string) (*copyOf, error) {
	s := c.slot(id)
	now := time.Now()
	if held := s.fresh(now); held != nil {
		c.metrics.CacheRead(true)
		if now.Sub(held.asked) > copyRefreshAge {
			c.refresh(id, s) //nolint:contextcheck // nobody waits for it
		}
		return held, nil
	}
	c.metrics.CacheRead(false)
	for range maxReadings {
		select {
		case result := <-c.load(id, s): //nolint:contextcheck // it is shared by all who wait
			if result.Err != nil {
				return nil, undone("The voucher could not be read in time.", result.Err)
			}
		case <-ctx.Done():
			return nil, undone("The voucher could not be read in time.", ctx.Err())
		}
		if held := s.fresh(time.Now()); held != nil {
			return held, nil
		}
	}
	return nil, model.Unavailable("The voucher is changing.", nil)
}

func (c *VoucherCache) slot(id string) *slot {
	if s, ok := c.slots.Get(id); ok {
		return s
	}
	s := &slot{}
	if before, ok, _ := c.slots.PeekOrAdd(id, s); ok {
		return before
	}
	return s
}

// fresh returns the held copy unless it is void or too old.
func (s *slot) fresh(now time.Time) *copyOf {
	held := s.held.Load()
	if held == nil || now.Sub(held.asked) >= copyMaxAge {
		return nil
	}
	if dropped := s.dropped.Load(); dropped != nil && !held.asked.After(*dropped) {
		return nil
	}
	return held
}

// refresh reads anew without letting anybody wait.
func (c *VoucherCache) refresh(id string, s *slot) {
	if !s.refreshing.CompareAndSwap(false, true) {
		return
	}
	c.jobs.Go(func() {
		defer s.refreshing.Store(false)
		<-c.load(id, s)
	})
}

// load reads one voucher for all who wait for it.
func (c *VoucherCache) load(id string, s *slot) <-chan singleflight.Result {
	return c.loading.DoChan(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
		defer cancel()
		fetched, err := c.fetch(ctx, id, s)
		if err != nil {
			return nil, err
		}
		s.held.Store(fetched)
		return nil, nil
	})
}

func (c *VoucherCache) fetch(ctx context.Context, id string, s *slot) (*copyOf, error) {
	asked := time.Now()
	read, err := c.reader.Do(ctx, id)
	if err = errors.Join(err, read.err); err != nil {
		return nil, err
	}
	fetched := &copyOf{asked: asked, told: time.Now(), closed: read.closed}
	if read.voucher == nil {
		fetched.missing = model.NotFound("voucher")
		return fetched, nil
	}
	fetched.voucher = *read.voucher
	if fetched.soldOut() {
		fetched.buyers = c.buyersOf(s, fetched.voucher) //nolint:contextcheck // they may be read behind the requests' backs
	}
	return fetched, nil
}

package cache

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/bits-and-blooms/bloom/v3"

	"seckill/model"
)

const (
	// maxRemembered bounds the buyers one sold-out voucher keeps in memory
	// (1.8 MB a million at the rate below). A larger sale goes without the
	// flag: every request takes the whole road, slower and as right.
	maxRemembered = 4_000_000
	// falseBuyers is how often a user without an order is taken for a buyer: such a
	// request goes on to the database, and gets the right answer there.
	falseBuyers = 0.001
	// buyersGrace is how long the requests that found a voucher sold out wait
	// for its buyers, some ten thousand of them. Longer lists are read in the
	// background, and until then every request takes the whole road.
	buyersGrace = 50 * time.Millisecond
	// buyersTimeout bounds such a reading: maxRemembered took 13 s.
	buyersTimeout = time.Minute
	// buyersPause is between two readings of one voucher's buyers, so that
	// changes in quick succession, or a database in trouble, are not answered
	// with one long reading after the other.
	buyersPause = time.Second
)

var (
	// errClosing ends a reading of buyers when the cache closes.
	errClosing = errors.New("the voucher cache is closing")
	// errOvertaken voids a reading of buyers during which the voucher changed.
	errOvertaken = errors.New("the voucher changed meanwhile")
)

// buyers is the set of users with a live order of a sold-out voucher. It may
// take a stranger for a buyer, never a buyer for a stranger.
type buyers struct {
	version int64 // of the voucher that was seen sold out before they were read
	filter  *bloom.BloomFilter
}

// mayInclude reports whether the user may have an order.
func (b *buyers) mayInclude(userID string) bool { return b.filter.TestString(userID) }

// buyersOf returns the buyers of a voucher that was seen sold out, or nil while
// they are not known. Reading them after that is what makes the set complete:
// each of them had committed before nothing remained. While the version
// stays the same nothing was sold or given back, and the same people have orders.
func (c *Vouchers) buyersOf(s *slot, v model.Voucher) *buyers {
	if known := s.buyers.Load(); known != nil && known.version == v.Version {
		return known
	}
	if v.Stock > maxRemembered || !s.reading.CompareAndSwap(false, true) {
		return nil
	}
	done := make(chan *buyers, 1)
	c.jobs.Go(func() {
		defer s.reading.Store(false)
		done <- c.readBuyers(s, v)
		c.wait(buyersPause)
	})
	grace := time.NewTimer(buyersGrace)
	defer grace.Stop()
	select {
	case read := <-done:
		return read
	case <-grace.C:
		return nil
	}
}

// readBuyers reads the buyers into the slot, and into its entry if that is still of
// the same version.
func (c *Vouchers) readBuyers(s *slot, v model.Voucher) *buyers {
	ctx, cancel := context.WithTimeout(context.Background(), buyersTimeout)
	defer cancel()
	read := &buyers{version: v.Version, filter: bloom.NewWithEstimates(uint(max(v.Stock, 1)), falseBuyers)}
	err := c.source.buyers(ctx, v, func(userID string) error {
		read.filter.AddString(userID)
		select {
		case <-c.closing:
			return errClosing
		default:
			return nil
		}
	})
	if err != nil {
		if !errors.Is(err, errClosing) && !errors.Is(err, errOvertaken) {
			c.log.Warn("the buyers of a sold-out voucher could not be read; its requests take the whole road",
				slog.String("voucher_id", v.ID), slog.Any("error", err))
		}
		return nil
	}
	s.buyers.Store(read)
	if held := s.entry.Load(); held != nil && held.buyers == nil && held.soldOut() && held.voucher.Version == v.Version {
		completed := *held
		completed.buyers = read
		s.entry.CompareAndSwap(held, &completed) // a newer entry has found them itself
	}
	return read
}

// wait waits, but not for a cache that closes.
func (c *Vouchers) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closing:
	}
}

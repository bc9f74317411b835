package cache

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/bits-and-blooms/bloom/v3"

	"seckill/internal/budget"
	"seckill/model"
)

const (
	// maxRemembered bounds the buyers of one sold-out voucher in memory (1.8 MB a
	// million at the rate below). In a larger sale no request is refused from the cache
	// as SOLD_OUT: all take the whole road, which is slower and as right.
	maxRemembered = 4_000_000
	// falseBuyers is how often a user without an order is taken for a buyer: such a
	// request takes the whole road, and gets the right answer there.
	falseBuyers = 0.001
)

var (
	// errClosing ends a reading of buyers when the cache closes.
	errClosing = errors.New("the voucher cache is closing")
	// errOvertaken voids a reading of buyers during which the voucher changed.
	errOvertaken = errors.New("the voucher changed meanwhile")
)

// buyers is the set of users with a live order of a sold-out voucher, and of those who wait before another one: each
// hears something else than SOLD_OUT. It may take a user without an order for a buyer, but never a buyer for a user
// without an order.
type buyers struct {
	version int64 // of the sold-out voucher, which was read before the buyers
	filter  *bloom.BloomFilter
}

// mayInclude reports whether the user may have an order.
func (b *buyers) mayInclude(userID string) bool { return b.filter.TestString(userID) }

// buyersOf returns the buyers of a voucher that was seen sold out, or nil while they are not known. The set is complete
// because the buyers are read after the voucher: each order was committed before nothing remained. While the version
// stays the same no unit is sold or given back, and so the buyers stay the same.
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
		select {
		case <-time.After(budget.Look):
		case <-c.closing:
		}
	})
	select {
	case read := <-done:
		return read
	case <-time.After(budget.Blink):
		return nil
	}
}

// readBuyers reads the buyers into the slot, and into the slot's entry if that is still of the same version.
func (c *Vouchers) readBuyers(s *slot, v model.Voucher) *buyers {
	ctx, cancel := context.WithTimeout(context.Background(), budget.Survey)
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
		s.entry.CompareAndSwap(held, &completed) // a newer entry has them already
	}
	return read
}

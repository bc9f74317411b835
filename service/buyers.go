package service

import (
	"context"
	"fmt"

	"github.com/bits-and-blooms/bloom/v3"

	"seckill/model"
)

const (
	// maxRemembered bounds the buyers one sold-out voucher keeps in memory
	// (1.8 MB a million at the rate below). A larger sale goes without the
	// flag: every request takes the whole road, slower and as right.
	maxRemembered = 4_000_000
	// falseBuyers is how often somebody who has no order is taken for a buyer;
	// it costs him the way to the database, not a wrong answer.
	falseBuyers = 0.001
)

// BuyerStore knows who has a live order.
type BuyerStore interface {
	// Buyers calls yield with the user of every live order of a voucher.
	Buyers(ctx context.Context, voucherID string, yield func(userID string) error) error
}

// buyers is the set of users with a live order of a sold-out voucher. It may
// take a stranger for a buyer, never a buyer for a stranger.
type buyers struct{ filter *bloom.BloomFilter }

// readBuyers reads the buyers of a voucher that was seen sold out. Reading
// them after that is what makes the set complete: whoever took a unit had
// committed before nothing remained.
func readBuyers(ctx context.Context, store BuyerStore, v model.Voucher) (*buyers, error) {
	if v.Stock > maxRemembered {
		return nil, nil //nolint:nilnil // "no set" is a valid answer: the caller takes the long road
	}
	filter := bloom.NewWithEstimates(uint(max(v.Stock, 1)), falseBuyers)
	err := store.Buyers(ctx, v.ID, func(userID string) error {
		filter.AddString(userID)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the buyers of voucher %s: %w", v.ID, err)
	}
	return &buyers{filter: filter}, nil
}

// mayInclude reports whether the user may have an order.
func (b *buyers) mayInclude(userID string) bool { return b.filter.TestString(userID) }

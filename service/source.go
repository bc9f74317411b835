package service

import (
	"context"

	"seckill/model"
)

// VoucherReader reads vouchers as they are now.
type VoucherReader interface {
	// GetMany returns those that exist, with the database's clock as their
	// ServerTime.
	GetMany(ctx context.Context, ids []string) (map[string]model.Voucher, error)
}

// BuyerStore knows who has a live order.
type BuyerStore interface {
	// Buyers calls yield with the user of every live order of a voucher.
	Buyers(ctx context.Context, voucherID string, yield func(userID string) error) error
}

// reading is one voucher as it was read.
type reading struct {
	voucher *model.Voucher // nil: there is none
	closed  bool           // its hot copy admits nobody
	err     error          // it could not be read, though others could
}

// copySource is where a cache reads its copies: whatever sells the vouchers.
type copySource interface {
	// copies answers each of the ids, in order.
	copies(ctx context.Context, ids []string) ([]reading, error)
	// buyers calls yield with every user who has an order of a sold-out voucher,
	// at least once. After errOvertaken nothing is to be made of them.
	buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error
}

// viewSource is a copySource whose copies are not what people are shown.
type viewSource interface {
	// views answers each of the ids, in order.
	views(ctx context.Context, ids []string) ([]reading, error)
}

// tableSource is the database, which sells in order mode sync.
type tableSource struct {
	vouchers VoucherReader
	store    BuyerStore
}

func (s tableSource) copies(ctx context.Context, ids []string) ([]reading, error) {
	found, err := s.vouchers.GetMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	read := make([]reading, len(ids))
	for i, id := range ids {
		if v, ok := found[id]; ok {
			read[i].voucher = &v
		}
	}
	return read, nil
}

func (s tableSource) buyers(ctx context.Context, v model.Voucher, yield func(userID string) error) error {
	return s.store.Buyers(ctx, v.ID, yield)
}

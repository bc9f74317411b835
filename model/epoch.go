package model

import (
	"context"
	"math"
	"time"
)

// AnyEpoch is later than any epoch.
const AnyEpoch int64 = math.MaxInt64

// EpochRecord is what the database says about a voucher's hot copy.
type EpochRecord struct {
	VoucherID string
	// Epoch is that of the latest copy; it is open when OpenEpoch is the same.
	Epoch int64
	// OpenEpoch is that of the latest copy that was ever opened.
	OpenEpoch int64
	// Barrier is the sequence of the last message that counts for OpenEpoch;
	// nil while that copy is open, or not yet known.
	Barrier *uint64
	// Progress is when a rebuild last made itself heard, and Now the
	// database's clock.
	Progress *time.Time
	Now      time.Time
	// Revision, Version, and how many units are Taken, are of the voucher's row.
	Revision, Version, Taken int64
	OnSale                   bool // as of Now
}

// Open reports whether the database holds the latest copy for open.
func (r EpochRecord) Open() bool { return r.Epoch > 0 && r.Epoch == r.OpenEpoch }

// Snapshot is one instant of a voucher and its orders.
type Snapshot struct {
	Voucher Voucher
	// Live calls yield for every live order, some thousand at once.
	Live func(ctx context.Context, yield func([]Order) error) error
}

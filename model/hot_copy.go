package model

import (
	"context"
	"math"
	"time"
)

// CopyState is whether a hot copy admits buyers.
type CopyState string

// The states of a hot copy. One that is missing is closed.
const (
	CopyOpen       CopyState = "open"
	CopyClosed     CopyState = "closed"
	CopyRebuilding CopyState = "rebuilding"
)

// HotCopy is one reading of what admits a voucher's buyers.
type HotCopy struct {
	State CopyState
	Epoch int64
	// Voucher is what the copy knows of it: ID, Price, Currency, Stock,
	// Remaining (not taken and not reserved), BeginAt, EndAt, State, Revision, Groups, Early, Cooldown;
	// ServerTime is the copy's clock at the reading, Phase as of then, and
	// Version is another one whenever anything about the copy has changed.
	Voucher  Voucher
	Reserved int64 // admitted and not known to be persisted
	Due      int64 // noted as waiting for it: as many, unless something has spoiled the copy
	Buyers   int64 // users with a reserved or a live order
}

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
	Draw                     bool // the voucher is to have no hot copy
}

// Open reports whether the database holds the latest copy for open.
func (r EpochRecord) Open() bool { return r.Epoch > 0 && r.Epoch == r.OpenEpoch }

// Cooling is a user who waits before another order of a voucher, and until when.
type Cooling struct {
	UserID string
	Until  time.Time
}

// Snapshot is one instant of a voucher and its orders.
type Snapshot struct {
	Voucher Voucher
	// Live calls yield for every live order, some thousand at once.
	Live func(ctx context.Context, yield func([]Order) error) error
	// Cooling calls yield for every user who waits before another order, some thousand at once.
	Cooling func(ctx context.Context, yield func([]Cooling) error) error
}

package model

import "time"

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
	// Remaining (not taken and not reserved), BeginAt, EndAt, State, Revision;
	// ServerTime is the copy's clock at the reading, Phase as of then, and
	// Version is another one whenever anything about the copy has changed.
	Voucher  Voucher
	Reserved int64 // admitted and not known to be persisted
	Buyers   int64 // users with a reserved or a live order
}

// CopyRecord is what the database says about a voucher's hot copy.
type CopyRecord struct {
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
func (r CopyRecord) Open() bool { return r.Epoch > 0 && r.Epoch == r.OpenEpoch }

// ModeRecord is what the database says about how it is sold from.
type ModeRecord struct {
	Mode OrderMode
	// SwitchingTo is set while `seckill mode` is at work: nothing is sold.
	SwitchingTo OrderMode
	// Deployment names this database towards queues and locks that several
	// deployments may share: 16 characters of [a-z0-9].
	Deployment string
}

// Serves reports whether instances of a mode may sell.
func (r ModeRecord) Serves(mode OrderMode) bool { return r.Mode == mode && r.SwitchingTo == "" }

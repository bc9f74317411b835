package model

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
	Due      int64 // noted as waiting for it: as many, unless something has spoiled the copy
	Buyers   int64 // users with a reserved or a live order
}

package model

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	// Voucher is what the copy knows of it: Remaining is free, ServerTime the copy's clock; any change changes Version.
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
	Epoch     int64      // of the latest copy; it is open when OpenEpoch is the same
	OpenEpoch int64      // of the latest copy that was ever opened
	Barrier   *uint64    // the sequence of the last message that counts for OpenEpoch; nil while open, or unknown
	Progress  *time.Time // when a rebuild last made itself heard
	Now       time.Time  `gorm:"-"` // the database's clock
	OnSale    bool       // as of Now
	Draw      bool       // the voucher is to have no hot copy

	Revision, Version, Taken int64 // of the voucher's row; Taken are units
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
	// Live and Cooling call yield for every live order and for every user who waits, some thousand at once.
	Live    func(ctx context.Context, yield func([]Order) error) error
	Cooling func(ctx context.Context, yield func([]Cooling) error) error
}

// Reservation is an order that a hot copy admitted, waiting for its row. Price, Currency, CreatedAt: at admission.
type Reservation struct {
	Order
	Epoch    int64  // of the hot copy that admitted the order
	Sequence uint64 // of the message in which the order came into the queue; 0 when it did not
	// Absent is the epoch of an opened hot copy that was asked and lacks the order; nil: none could tell.
	Absent *int64
}

// Processing is the reservation as its user sees it.
func (r Reservation) Processing() Order {
	return Order{
		ID: r.ID, VoucherID: r.VoucherID, UserID: r.UserID, Status: OrderProcessing,
		Price: r.Price, Currency: r.Currency, CreatedAt: r.CreatedAt,
	}
}

// VouchersOf lists the vouchers of reservations, each once.
func VouchersOf(reservations []Reservation) []string {
	ids := make([]string, 0, len(reservations))
	for _, r := range reservations {
		ids = append(ids, r.VoucherID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// ReserveRequest asks a hot copy for one unit.
type ReserveRequest struct {
	OrderID, VoucherID, UserID string

	Locked  bool   // the caller holds the user's lock: the copy need not look whether another program does
	Anytime bool   // outside the window too: an operator replays what was admitted within it
	Early   bool   // the user may buy from the voucher's early beginning on
	Trace   string // of the order
}

// ReserveResult answers a ReserveRequest; Epoch is that of the hot copy asked. Err is nil when the unit is taken, by
// this call or an earlier sending; else a refusal of the contract, ErrCopyClosed, ErrUserLocked or ErrOrderClosed.
type ReserveResult struct {
	Reservation
	Err error
}

// What hot copies answer, and what is found when an answer is carried out.
var (
	// ErrCopyClosed says that a hot copy is not loaded, is being rebuilt, or another one. Nothing is known of the sale.
	ErrCopyClosed = errors.New("the hot copy is closed")
	// ErrNeedsOutbox says that a unit comes back only with its row of the outbox, which knows who waited for it.
	ErrNeedsOutbox  = errors.New("only the outbox gives units of this voucher back now")
	ErrUserLocked   = errors.New("the user's lock is held by another")                // by another program
	ErrOrderClosed  = errors.New("the order was closed before")                       // the admission came late
	ErrCopyReplaced = errors.New("the hot copy that admitted the order was replaced") // the next may hold it or not
	ErrSuperseded   = errors.New("superseded by another change")                      // by another process, meanwhile
)

// OutgrownError says that a sold out hot copy must be rebuilt for its stock, because users may have waited for it.
type OutgrownError struct {
	VoucherID string
	Epoch     int64 // of the hot copy
}

func (e *OutgrownError) Error() string {
	return fmt.Sprintf("the hot copy of voucher %s, epoch %d, cannot grow in place", e.VoucherID, e.Epoch)
}

// Reasons of failed orders.
const (
	ReasonSoldOut        = "SOLD_OUT"        // the hot copy had more units than the database
	ReasonAlreadyOrdered = "ALREADY_ORDERED" // the hot copy had lost the user's other order
	ReasonSuperseded     = "SUPERSEDED"      // the hot copy that admitted it was replaced meanwhile
	ReasonUnprocessable  = "UNPROCESSABLE"   // it cannot be stored as it is; see the dead letters
)

// Release is a unit that the database has given back and a hot copy may not know of yet.
type Release struct {
	ID         int64
	OrderID    string
	VoucherID  string
	UserID     string
	HeirID     string // the order that got the unit; empty: the unit is on sale again
	HeirUserID string // of that order, who waited for it

	CooldownUntil *time.Time // as the order has it
	WrittenOff    bool       // the unit is used: it leaves the stock with the order, and nobody gets it
	Direct        bool       `gorm:"-"` // the caller has just committed it; false for rows of the outbox
}

// Release is what its hot copy is to be told of an order that is closed.
func (o Order) Release() Release {
	return Release{
		OrderID: o.ID, VoucherID: o.VoucherID, UserID: o.UserID, CooldownUntil: o.CooldownUntil,
		WrittenOff: o.WrittenOff(),
	}
}

// Buyer is a user who asks for a voucher.
type Buyer struct{ VoucherID, UserID string }

// BuyersOrder is the order that marks a buyer; without an id none. Pending is its reservation until it has a row.
type BuyersOrder struct {
	OrderID string
	Pending *Reservation
}

// DeadLetter is an order, or a whole message, that could not be persisted.
type DeadLetter struct {
	Sequence    uint64
	At          time.Time
	Reason      string
	Reservation *Reservation // nil when the message could not even be read; then Raw is it
	Raw         []byte
}

// Backlog is what waits in the queue.
type Backlog struct {
	Messages     int64
	Age          time.Duration // of the oldest message, by the queue's clock
	LastSequence uint64        // of the newest message ever stored
	AckFloor     uint64        // up to which every message was acknowledged
}

// AnyVoucher stands, where the queue is asked, for messages that may carry orders of any voucher.
const AnyVoucher = ""

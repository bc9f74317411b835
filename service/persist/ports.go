package persist

import (
	"context"
	"log/slog"

	"seckill/internal/telemetry"
	"seckill/model"
)

// Deps are what the parts of this package work with.
type Deps struct {
	Database Database
	Epochs   Epochs
	Hot      HotCopies
	Queue    Queue
	// Rebuild asks for a rebuild of a voucher's hot copy if one is needed, also of a healthy one
	// whose epoch is wrong, or earlier. It never blocks.
	Rebuild func(voucherID string, wrong int64)
	Metrics *telemetry.Worker
	Log     *slog.Logger
}

// Database is the truth about orders.
type Database interface {
	// Persist commits what can be committed in one transaction. A refusal after
	// admission is a failed row, not an error.
	Persist(ctx context.Context, reservations []model.Reservation) ([]model.Outcome, error)
	// Fail writes the failed row of a reservation that cannot be stored as it is. A
	// row that exists already stays, and is returned.
	Fail(ctx context.Context, reservation model.Reservation, reason string) (model.Order, error)
	// DoneOrders removes the rows of the outbox that are of orders.
	DoneOrders(ctx context.Context, orderIDs []string) error
}

// Epochs is what the database says about hot copies.
type Epochs interface {
	// Read leaves out vouchers that do not exist.
	Read(ctx context.Context, ids []string) (map[string]model.EpochRecord, error)
}

// HotCopies are the hot copies.
type HotCopies interface {
	// Read answers each of the ids; with an error it answers those it can.
	Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error)
	// OrderOf tells which order a user's mark names; "" without a mark.
	OrderOf(ctx context.Context, voucherID, userID string) (orderID string, pending *model.Reservation, err error)
	// Held finds reservations of an epoch by their ids, closed or not. After an error nothing is known.
	Held(ctx context.Context, voucherID string, epoch int64, orderIDs []string) (map[string]model.Reservation, error)
	// Settle ends the reservations of rows that are committed, of any vouchers.
	Settle(ctx context.Context, orders []model.Order) error
	// Release gives back the unit of a closed row; false means "later".
	Release(ctx context.Context, release model.Release) (applied bool, err error)
}

// Queue keeps the dead letters.
type Queue interface {
	// Bury writes a dead letter.
	Bury(ctx context.Context, letter model.DeadLetter) error
}

package service

import (
	"context"

	"seckill/model"
	"seckill/repository"
)

// CopyStore is the database's side of hot copies.
type CopyStore interface {
	Read(ctx context.Context, ids []string) (map[string]model.EpochRecord, error)
	// Close begins the next epoch, unless the latest is another one than from:
	// ErrSuperseded.
	Close(ctx context.Context, voucherID string, from int64) (model.EpochRecord, error)
	SetBarrier(ctx context.Context, voucherID string, epoch int64, barrier uint64) error
	Progress(ctx context.Context, voucherID string, epoch int64) error
	// Snapshot shows a voucher and its orders as of one instant. Like the others
	// it answers ErrSuperseded unless the epoch is the latest and not open.
	Snapshot(ctx context.Context, voucherID string, epoch int64, work func(CopySnapshot) error) error
	Open(ctx context.Context, voucherID string, epoch int64) error
	// Known tells which orders have a row, whatever became of them.
	Known(ctx context.Context, ids []string) (map[string]bool, error)
}

// CopySnapshot is one instant of a voucher and its orders.
type CopySnapshot interface {
	Voucher() model.Voucher
	// Live calls yield for every live order, some thousand at once.
	Live(ctx context.Context, yield func([]model.Order) error) error
}

// DatabaseCopies is repository.Epochs as a CopyStore.
type DatabaseCopies struct{ *repository.Epochs }

// Snapshot implements CopyStore.
func (d DatabaseCopies) Snapshot(ctx context.Context, voucherID string, epoch int64, work func(CopySnapshot) error) error {
	return d.Epochs.Snapshot(ctx, voucherID, epoch, func(s *repository.Snapshot) error { return work(s) })
}

// LoadedCopies is what a rebuild does to hot copies.
type LoadedCopies interface {
	Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error)
	// Close frees the keys of every epoch but the one the database opened last.
	Close(ctx context.Context, voucherID string, epoch, opened int64) error
	// Pendings calls yield for every reservation of an epoch, closed or not.
	Pendings(ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error) error
	// Load loads live orders and carried reservations, in any order; one of
	// nothing comes first.
	Load(ctx context.Context, voucherID string, epoch int64, live []model.Order, carried []model.Reservation) error
	// Open frees the keys of the previous epoch.
	Open(ctx context.Context, v model.Voucher, epoch, missing, previous int64) error
	// Abandon frees the keys of an epoch that will not be opened.
	Abandon(ctx context.Context, voucherID string, epoch int64)
}

// BacklogReader looks at the queue.
type BacklogReader interface {
	Backlog(ctx context.Context) (model.Backlog, error)
	// BacklogOf is Backlog of one voucher's messages; only the last sequence is
	// that of all.
	BacklogOf(ctx context.Context, voucherID string) (model.Backlog, error)
}

// ModeReader knows how the database is sold from.
type ModeReader interface {
	Read(ctx context.Context) (model.ModeRecord, error)
}

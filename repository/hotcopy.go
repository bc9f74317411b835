package repository

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/model"
)

// HotCopyOptions are what a deployment decides about its hot copies.
type HotCopyOptions struct {
	// Identity stands for the run id of a Redis that has none: the one inside
	// this process, where each start is another server. Empty: Redis tells.
	Identity string
	// LockKeys lets Reserve look whether somebody else holds the user's lock,
	// which must then live on the same single Redis.
	LockKeys bool
}

// HotCopies keeps in Redis what admits buyers.
type HotCopies struct {
	client  redis.UniversalClient
	options HotCopyOptions
}

// NewHotCopies works over the client given.
func NewHotCopies(client redis.UniversalClient, options HotCopyOptions) *HotCopies {
	return &HotCopies{client: client, options: options}
}

var errLater = errors.New("not here yet") //nolint:gochecknoglobals // goes with the stubs

// Reserve takes units.
func (h *HotCopies) Reserve(ctx context.Context, asked []model.Admission) ([]model.Admitted, error) {
	return nil, errLater
}

// Confirm tells whether heads are open with the reservations' epochs.
func (h *HotCopies) Confirm(ctx context.Context, reservations []model.Reservation) ([]bool, error) {
	return nil, errLater
}

// Settle removes pending entries whose rows are committed.
func (h *HotCopies) Settle(ctx context.Context, voucherID string, orderIDs []string) error {
	return errLater
}

// Release gives a unit back.
func (h *HotCopies) Release(ctx context.Context, release model.Release) (applied bool, err error) {
	return false, errLater
}

// Correct replaces a buyer's mark.
func (h *HotCopies) Correct(ctx context.Context, release model.Release, liveOrderID string) error {
	return errLater
}

// Invalidate closes a copy that is wrong.
func (h *HotCopies) Invalidate(ctx context.Context, voucherID string, epoch int64) error {
	return errLater
}

// Touch notes that entries were published again.
func (h *HotCopies) Touch(ctx context.Context, reservations []model.Reservation) error {
	return errLater
}

// Read reads copies.
func (h *HotCopies) Read(ctx context.Context, ids []string) (map[string]model.HotCopy, error) {
	return nil, errLater
}

// Pending finds a pending entry.
func (h *HotCopies) Pending(ctx context.Context, orderID string) (model.Reservation, bool, error) {
	return model.Reservation{}, false, errLater
}

// OrderOf finds a user's order.
func (h *HotCopies) OrderOf(ctx context.Context, voucherID, userID string) (orderID string, pending *model.Reservation, err error) {
	return "", nil, errLater
}

// Due lists old pending entries.
func (h *HotCopies) Due(ctx context.Context, voucherID string, olderThan time.Duration, limit int) ([]model.Reservation, error) {
	return nil, errLater
}

// Buyers lists the users with a mark.
func (h *HotCopies) Buyers(ctx context.Context, voucherID string, yield func(userID string) error) error {
	return errLater
}

// Marks lists the marks of an epoch.
func (h *HotCopies) Marks(ctx context.Context, voucherID string, epoch int64, yield func(userID, orderID string) error) error {
	return errLater
}

// Pendings lists the pending entries of an epoch.
func (h *HotCopies) Pendings(ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error) error {
	return errLater
}

// Close closes a copy.
func (h *HotCopies) Close(ctx context.Context, voucherID string, epoch int64) error { return errLater }

// Rebuilding says that a copy is being loaded.
func (h *HotCopies) Rebuilding(ctx context.Context, voucherID string, epoch int64) error {
	return errLater
}

// Load loads a chunk.
func (h *HotCopies) Load(ctx context.Context, voucherID string, epoch int64, marks []model.Release, pending []model.Reservation) error {
	return errLater
}

// Open opens a loaded copy.
func (h *HotCopies) Open(ctx context.Context, v model.Voucher, epoch int64, marks, pending int, previous int64) error {
	return errLater
}

// Apply brings an administrator's change.
func (h *HotCopies) Apply(ctx context.Context, v model.Voucher) (applied bool, err error) {
	return false, errLater
}

// Lower lowers the stock.
func (h *HotCopies) Lower(ctx context.Context, voucherID string, stock, revision int64) error {
	return errLater
}

// Watch tells of settled and released orders.
func (h *HotCopies) Watch(ctx context.Context, settled func(orderIDs []string), missed func()) error {
	return errLater
}

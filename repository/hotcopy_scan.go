package repository

import (
	"context"
	"fmt"

	"seckill/model"
)

// scanCount is how many fields one HSCAN looks at: a reply of some 100 KB.
const scanCount = 1000

// Buyers calls yield with every user who has a reserved or a live order in the
// open copy; with some of them perhaps twice. Who was marked before it began,
// and stays so, is among them.
func (h *HotCopies) Buyers(ctx context.Context, voucherID string, yield func(userID string) error) error {
	c := &copyCall{script: h.scripts.confirm, voucher: voucherID}
	h.run(ctx, c)
	if err := c.closed("read the buyers"); err != nil {
		return err
	}
	return h.marks(ctx, voucherID, c.head, true, func(userID, _ string) error { return yield(userID) })
}

// Marks calls yield with every mark of one epoch, perhaps with some of them
// twice, also of a closed copy. It finds nothing when the keys are gone.
func (h *HotCopies) Marks(
	ctx context.Context, voucherID string, epoch int64, yield func(userID, orderID string) error,
) error {
	return h.marks(ctx, voucherID, epoch, false, yield)
}

func (h *HotCopies) marks(
	ctx context.Context, voucherID string, epoch int64, whole bool, yield func(userID, orderID string) error,
) error {
	if err := h.scan(ctx, copyBuyers(voucherID, epoch), whole, yield); err != nil {
		return fmt.Errorf("read the buyers of voucher %s: %w", voucherID, err)
	}
	return nil
}

// Pendings is Marks for pending entries.
func (h *HotCopies) Pendings(
	ctx context.Context, voucherID string, epoch int64, yield func(model.Reservation) error,
) error {
	return h.pendings(ctx, voucherID, epoch, false, func(orderID, entry string) error {
		return yield(pendingEntry(orderID, voucherID, entry))
	})
}

func (h *HotCopies) pendings(
	ctx context.Context, voucherID string, epoch int64, whole bool, yield func(orderID, entry string) error,
) error {
	if err := h.scan(ctx, copyPending(voucherID, epoch), whole, yield); err != nil {
		return fmt.Errorf("read the pending orders of voucher %s: %w", voucherID, err)
	}
	return nil
}

// scan reads a hash that has a sentinel, without holding up anybody. When the
// sentinel was not met the hash vanished meanwhile and what was read is not all
// of it: ErrCopyClosed. A hash that was never there is an error only to who
// needs a whole one.
func (h *HotCopies) scan(ctx context.Context, key string, whole bool, yield func(field, value string) error) error {
	cursor, met := uint64(0), false
	for {
		page, next, err := h.page(ctx, key, cursor)
		if otherKind(err) {
			break // nothing of ours is there
		}
		if err != nil {
			return err
		}
		for i := 0; i+1 < len(page); i += 2 {
			whole = true
			if page[i] == "" {
				met = true
				continue
			}
			if err := yield(page[i], page[i+1]); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
		whole = true
	}
	if whole && !met {
		return model.ErrCopyClosed
	}
	return nil
}

func (h *HotCopies) page(ctx context.Context, key string, cursor uint64) ([]string, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	page, next, err := h.client.HScan(ctx, key, cursor, "", scanCount).Result()
	if err != nil {
		return nil, 0, model.Unavailable("Redis does not answer.", err)
	}
	return page, next, nil
}

package service

import (
	"context"

	"seckill/model"
)

// adopt gives reservations that a rebuild has carried over into a copy which is
// open now the epoch of that copy, as publishing them again does. Their messages
// may come after all, from behind the barrier, and would let an order fail whose
// user hears that it is processing and whose unit is taken.
//
// That is sound: the new copy was loaded with the order's mark, and a rebuild
// after it waits for the message, because it is in the queue already. What
// cannot be asked keeps its epoch, and the database decides.
func (s *Settler) adopt(ctx context.Context, reservations []model.Reservation) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	copies, _ := s.copies.Read(ctx, vouchersOf(reservations)) // as far as they can be read
	for i, r := range reservations {
		hot := copies[r.VoucherID]
		if hot.State != model.CopyOpen || r.Epoch <= 0 || r.Epoch >= hot.Epoch {
			continue
		}
		held, found, err := s.copies.Pending(ctx, r.ID)
		if err == nil && found && held.UserID == r.UserID && held.Epoch > r.Epoch {
			reservations[i].Epoch = held.Epoch
		}
	}
}

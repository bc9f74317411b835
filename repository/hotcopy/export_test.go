package hotcopy

import "context"

// Give makes the first half of a transfer, as a process does that dies before the second.
func (s *Store) Give(ctx context.Context, voucherID string, epoch int64, from, to int, units int64) error {
	_, err := s.give(ctx, voucherID, epoch, []transfer{{from, to, units}})
	return err
}

package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"seckill/model"
)

// takeLock takes the user's lock for a request that is inside the gate. It is
// outside of it when takeLock answers an error.
func (s *Orders) takeLock(ctx context.Context, userID, voucherID string) (Lease, error) {
	lease, err := s.lock(ctx, userID, 0)
	if err != nil {
		s.gate.leave()
		if s.lockWait > 0 && model.CodeOf(err) == model.CodeLockBusy {
			return s.waitForLock(ctx, userID, voucherID)
		}
		return nil, err
	}
	if err := s.refusedLocally(ctx, userID, voucherID); err != nil {
		s.gate.leave()
		s.unlock(ctx, lease, userID) // the lock was slow, and the sale is over
		return nil, err
	}
	return lease, nil
}

// waitForLock waits for the user's lock outside the gate, because whoever waits
// for himself must not stand in the way of the others, and enters it again.
func (s *Orders) waitForLock(ctx context.Context, userID, voucherID string) (Lease, error) {
	lease, err := s.lock(ctx, userID, s.lockWait)
	if err != nil {
		return nil, err
	}
	if err := s.enter(ctx, userID, voucherID); err != nil {
		s.unlock(ctx, lease, userID)
		return nil, err
	}
	return lease, nil
}

func (s *Orders) lock(ctx context.Context, userID string, wait time.Duration) (Lease, error) {
	began := time.Now()
	lease, err := s.locks.Lock(ctx, userLock(userID), wait)
	s.metrics.LockWaited(time.Since(began))
	switch {
	case err == nil:
		return lease, nil
	case errors.Is(err, ErrLockBusy):
		return nil, lockBusy(err)
	default:
		// Whatever a store of locks says but "busy" means that it cannot be used.
		return nil, model.Unavailable("The user's lock could not be taken.", err)
	}
}

func (s *Orders) unlock(ctx context.Context, lease Lease, userID string) {
	if err := lease.Unlock(); err != nil {
		s.log.WarnContext(ctx, "the user's lock was not given back and ends by itself",
			slog.String("user_id", userID), slog.Any("error", err))
	}
}

func lockBusy(cause error) *model.Error {
	return &model.Error{
		Code:       model.CodeLockBusy,
		Detail:     "Another request of yours is under way.",
		RetryAfter: time.Second,
		Cause:      cause,
	}
}

// lost says that a lock was lost while it was held; nil for none.
func lost(lease Lease) error {
	if lease == nil {
		return nil
	}
	if cause := context.Cause(lease.Context()); cause != nil {
		return model.Unavailable("The user's lock was lost.", cause)
	}
	return nil
}

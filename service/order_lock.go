package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"seckill/model"
)

// lock takes the user's lock; zero wait is one try.
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

// unlock gives the user's lock back; nil is none.
func (s *Orders) unlock(ctx context.Context, lease Lease, userID string) {
	if lease == nil {
		return
	}
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

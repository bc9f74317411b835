package sale

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"seckill/internal/telemetry"
	"seckill/internal/tracing"
	"seckill/model"
)

// hold is one user's lock during a purchase. Who makes it releases it by defer, whatever happens in between. Only what
// settles an order behind a client that was answered takes it over: until that order is decided, the same user could buy
// under the lock elsewhere.
type hold struct {
	locks   model.Locker
	trace   *tracing.Tracer
	metrics *telemetry.Metrics
	log     *slog.Logger

	userID string
	lease  model.Lease // nil: it is not taken, or not any more
}

// take takes the lock, and waits for it so long at the most; zero is one try. LOCK_BUSY says that somebody else kept it.
func (h *hold) take(ctx context.Context, wait time.Duration) error {
	began := time.Now()
	ctx, end := h.trace.Step(ctx, "lock")
	lease, err := h.locks.Lock(ctx, model.UserLock(h.userID), wait)
	end(err)
	h.metrics.LockWaited(time.Since(began))
	switch {
	case err == nil:
		h.lease = lease
		return nil
	case errors.Is(err, model.ErrLockBusy):
		return lockBusy(err)
	default:
		// Any other error means that the store of locks cannot be used now.
		return model.Unavailable("The user's lock could not be taken.", err)
	}
}

// taken reports whether the lock is held here.
func (h *hold) taken() bool { return h.lease != nil }

// lost is UNAVAILABLE when the lock was lost while it was held. One that is not taken is never lost.
func (h *hold) lost() error {
	if h.lease == nil {
		return nil
	}
	if cause := context.Cause(h.lease.Context()); cause != nil {
		return model.Unavailable("The user's lock was lost.", cause)
	}
	return nil
}

// handOver gives the lock to a new owner, who releases it. Here it is not held any more.
func (h *hold) handOver() *hold {
	over := *h
	h.lease = nil
	return &over
}

// release gives the lock back. Where it is not held, release does nothing.
func (h *hold) release(ctx context.Context) {
	if h.lease == nil {
		return
	}
	if err := h.lease.Unlock(); err != nil {
		h.log.WarnContext(ctx, "the user's lock was not given back and ends by itself",
			slog.String("user_id", h.userID), slog.Any("error", err))
	}
	h.lease = nil
}

func lockBusy(cause error) *model.Error {
	return &model.Error{
		Code:       model.CodeLockBusy,
		Detail:     "Another request of yours is under way.",
		RetryAfter: time.Second,
		Cause:      cause,
	}
}

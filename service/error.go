package service

import (
	"context"
	"errors"

	"seckill/internal/batch"
	"seckill/model"
)

// undone makes UNAVAILABLE of what could not be done in time or for want of
// room. What the domain has answered stays as it is, and so does everything
// else: it is a bug.
func undone(detail string, err error) error {
	if _, ok := errors.AsType[*model.Error](err); ok {
		return err
	}
	for _, reason := range []error{
		batch.ErrFull, batch.ErrClosed, batch.ErrNotRun, context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, reason) {
			return model.Unavailable(detail, err)
		}
	}
	return err
}

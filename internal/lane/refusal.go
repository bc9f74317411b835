package lane

import (
	"context"
	"errors"

	"seckill/model"
)

// Undone makes UNAVAILABLE of the error of an item that could not be done in time
// or for want of room. What the domain has answered stays as it is, and so does
// everything else: it is a bug.
func Undone(detail string, err error) error {
	if _, ok := errors.AsType[*model.Error](err); ok {
		return err
	}
	for _, reason := range []error{ErrFull, ErrClosed, ErrNotRun, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, reason) {
			return model.Unavailable(detail, err)
		}
	}
	return err
}

package lane

import (
	"context"
	"errors"

	"seckill/model"
)

// Halve does something with items that go together. Where they are too much for the other side, as its refusal tells, it does
// it with each half, down to one: who knows a limit only by what is refused need not be told of it. What is refused alone is
// that item's error, and holds up no other. Any other error ends it, because what follows would meet it too.
func Halve[T any](items []T, tooMuch func(error) bool, do func(some []T) error) error {
	err := do(items)
	if err == nil || len(items) < 2 || !tooMuch(err) {
		return err
	}
	half := len(items) / 2
	err = Halve(items[:half], tooMuch, do)
	if err != nil && !tooMuch(err) {
		return err
	}
	return errors.Join(err, Halve(items[half:], tooMuch, do))
}

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

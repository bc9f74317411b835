package queue

import (
	"fmt"

	"seckill/model"
)

// unavailable says that the queue could not answer a question or make a change
// that may be repeated.
func unavailable(action string, err error) error {
	return fmt.Errorf("%s: %w", action, model.Unavailable("The order queue does not answer.", err))
}

// unknown says that orders may or may not be stored. Every error of a publish
// is one of these, also where nothing can have been sent: nobody may undo
// anything for it, so that a finer distinction would only invite to.
func unknown(action string, err error) error {
	return fmt.Errorf("%s: %w", action, model.Unavailable("The order queue did not confirm; whether the order is stored is not known yet.",
		fmt.Errorf("%w: %w", model.ErrUnknownOutcome, err)))
}

package batch

import "context"

// Ticket stands for one submitted item.
type Ticket[In, Out any] struct {
	item      In
	abandoned <-chan struct{} // the submitter's context
	done      chan struct{}
	answer    Out
	err       error
}

// Wait returns the item's answer, or ctx's error when that ends first; the
// item may then still run, and Wait may be called again.
func (t *Ticket[In, Out]) Wait(ctx context.Context) (Out, error) {
	select {
	case <-t.done:
		return t.answer, t.err
	default:
	}
	select {
	case <-t.done:
		return t.answer, t.err
	case <-ctx.Done():
		var none Out
		return none, ctx.Err()
	}
}

func (t *Ticket[In, Out]) finish(answer Out, err error) {
	t.answer, t.err = answer, err
	close(t.done)
}

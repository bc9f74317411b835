package service

import "context"

// gate bounds how many go through at once; the others wait their turn, first
// come first served.
//
// In a rush everybody passes the first look at the copy before anything is
// sold. Without a gate all of them would take a lock and ask the database; with
// one, those behind it are told from memory that those before them took it all.
type gate chan struct{}

func newGate(size int) gate { return make(gate, size) }

// do runs work inside the gate. An error says that ctx ended before its turn came,
// and work did not run.
func (g gate) do(ctx context.Context, work func()) error {
	select {
	case g <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g }()
	work()
	return nil
}

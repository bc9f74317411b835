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

// enter waits for a turn, at most until ctx ends.
func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave lets the next one in.
func (g gate) leave() { <-g }

package lab

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// actor is a worker of an attack. It does one unit of work and stops at every
// point until it is let go.
type actor struct {
	name    string
	points  <-chan point // closed when the work is over
	release func()       // lets it go on from the point at which it stands
	kill    func()       // ends it as a power cut would
	end     func() (outcome, error)

	standing bool
	over     bool
}

// to lets the actor go on until it stands at one of the points. False when it
// did not get there: its work is over, or the patience is.
func (a *actor) to(ctx context.Context, patience time.Duration, points ...point) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for !a.over {
		a.next()
		select {
		case p, ok := <-a.points:
			a.standing, a.over = ok, !ok
			if ok && slices.Contains(points, p) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// next releases the actor if it stands.
func (a *actor) next() {
	if a.standing {
		a.standing = false
		a.release()
	}
}

// finish lets the actor end its work.
func (a *actor) finish(ctx context.Context) (outcome, error) {
	for !a.over {
		a.next()
		select {
		case _, ok := <-a.points:
			a.standing, a.over = ok, !ok
		case <-ctx.Done():
			a.kill()
			return outcome{}, fmt.Errorf("worker %s did not end: %w", a.name, context.Cause(ctx))
		}
	}
	done, err := a.end()
	if err != nil {
		return done, fmt.Errorf("worker %s: %w", a.name, err)
	}
	return done, nil
}

// newActor starts an actor in this process.
func newActor(ctx context.Context, name string, s strategy, with setup) *actor {
	ctx, kill := context.WithCancel(ctx)
	points, let := make(chan point), make(chan struct{})
	with.pause = func(ctx context.Context, p point) error {
		select {
		case points <- p:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case <-let:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	var done outcome
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(points)
		defer close(ended)
		done, failed = performOnce(ctx, s, with)
	}()
	return &actor{
		name: name, points: points, kill: kill,
		release: func() {
			select {
			case let <- struct{}{}:
			case <-ended:
			}
		},
		end: func() (outcome, error) {
			<-ended
			kill()
			return done, failed
		},
	}
}

// performOnce opens a performer for one unit of work.
func performOnce(ctx context.Context, s strategy, with setup) (done outcome, err error) {
	worker, err := s.open(ctx, with)
	if err != nil {
		return outcome{}, err
	}
	defer func() {
		if closed := worker.close(); err == nil {
			err = closed
		}
	}()
	return worker.perform(ctx)
}

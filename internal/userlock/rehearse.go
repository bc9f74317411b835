package userlock

import (
	"context"
	"errors"
	"fmt"

	"seckill/internal/budget"
	"seckill/internal/ids"
	"seckill/internal/poll"
	"seckill/internal/redisdb"
	"seckill/lock"
	"seckill/lock/driver"
	"seckill/model"
)

const (
	// listenTimeout bounds how long the start waits for the messages of locks, and listenPoll is between two looks.
	listenTimeout = budget.Look
	listenPoll    = listenTimeout / 200
)

// Rehearse tries what locks in Redis need, on a name of its own for each primary; elections says that there are any. A
// right that is missing is redisdb.ErrRights.
func (o Options) Rehearse(ctx context.Context, elections bool) error {
	unique, err := ids.New()
	if err != nil {
		return fmt.Errorf("name a rehearsal: %w", err)
	}
	name := func(n int) string { return fmt.Sprintf("lock:order:seckill-start-check.%s.%d", unique, n) }
	spots, err := redisdb.Spots(ctx, o.Redis, name)
	failed := []error{err}
	for _, n := range spots {
		if o.Mode == model.LockSetNX {
			failed = append(failed, rehearse(ctx, lock.NewSetNXStore(o.Redis, o.redisOptions()...), setNXPrefix+name(n)))
		}
		if o.Mode == model.LockRedis || elections {
			failed = append(failed, rehearse(ctx, lock.NewRedisStore(o.Redis, o.redisOptions()...), name(n)))
		}
	}
	return redisdb.Lacking(errors.Join(failed...))
}

// rehearse does with one lock what is ever done with one: it is taken, kept, passed on, given back, and forced open.
func rehearse(ctx context.Context, store driver.Store, name string) error {
	ctx, cancel := context.WithTimeout(ctx, budget.Work)
	defer cancel()
	watch := store.Watch(name, func() {})
	patient, done := context.WithTimeout(ctx, listenTimeout)
	defer done()
	heard := poll.Until(patient, listenPoll, func() (bool, error) { return watch.Live(), nil })
	first := driver.Request{Name: name, Holder: name + ":1", Holds: 1, Lease: budget.Work}
	second := driver.Request{Name: name, Holder: name + ":2", Holds: 1, Lease: budget.Work}
	_, taken := store.Acquire(ctx, first)
	kept := store.Renew(ctx, []driver.Request{first})
	failed := append([]error{heard, taken}, kept...)
	if passer, ok := store.(driver.Passer); ok {
		_, err := passer.Pass(ctx, first, second)
		failed = append(failed, err)
		first = second
	}
	first.Holds = 0
	_, freed := store.Release(ctx, first)
	_, forced := store.ForceRelease(ctx, name)
	watch.Stop()
	return errors.Join(append(failed, freed, forced, store.Close())...)
}

package lab

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// checkThenSet asks whether the key is there and sets it if not.
//
// Why it breaks: two commands are not one. Between the GET that finds the lock
// free and the SET that takes it another worker's GET finds it free too.
// Cured by SET NX, which checks and sets in one command: the setnx store.
func checkThenSet() strategy {
	try := func(ctx context.Context, s *spin, owner string) (bool, error) {
		err := s.client.Get(ctx, s.key).Err()
		if err == nil {
			return false, nil
		}
		if !errors.Is(err, redis.Nil) {
			return false, err
		}
		if err := s.setup.pause(ctx, pointChecked); err != nil {
			return false, err
		}
		return true, s.client.Set(ctx, s.key, owner, s.setup.Lease).Err()
	}
	return strategy{
		name: "check-then-set", group: groupBroken, defect: defectLost, on: onRedis,
		why:     "two find the lock free before either has set it",
		cure:    "setnx store",
		attacks: []attack{overlap()},
		open:    openSpin(try, freeOwn), ledger: openCells,
	}
}

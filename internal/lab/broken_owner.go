package lab

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// noOwnerCheck is SET NX PX, and a plain DEL at the end.
//
// Why it breaks: a slow holder (a long pause after its write) outlives its
// lease. The next one takes the lock; then the slow one wakes up and deletes
// it, a lock that is not its own, and a third one walks in beside the second.
// Cured by comparing the owner before deleting, in one step: the setnx store.
func noOwnerCheck() strategy {
	return strategy{
		name: "setnx, no owner check", group: groupBroken, defect: defectLost, on: onRedis,
		why:     "a slow holder deletes the lock of the one after it, and a third walks in",
		cure:    "setnx store",
		attacks: []attack{staleUnlock(pointWritten)},
		open:    openSpin(tryExpiring, freeAnybodys), ledger: openCells,
	}
}

// getThenDelete compares the owner, then deletes.
//
// Why it breaks: two commands are not one. The lease runs out between the GET
// that says "mine" and the DEL, another one takes the lock, and the DEL deletes
// theirs.
// Cured by a script that compares and deletes in one step: the setnx store.
func getThenDelete() strategy {
	release := func(ctx context.Context, s *spin, owner string) error {
		found, err := s.client.Get(ctx, s.key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if found != owner {
			return nil
		}
		if err := s.setup.pause(ctx, pointOwner); err != nil {
			return err
		}
		return s.client.Del(ctx, s.key).Err()
	}
	return strategy{
		name: "setnx, GET then DEL", group: groupBroken, defect: defectLost, on: onRedis,
		why:     "the lease runs out between GET and DEL, and the DEL hits somebody else's lock",
		cure:    "setnx store",
		attacks: []attack{staleUnlock(pointOwner)},
		open:    openSpin(tryExpiring, release), ledger: openCells,
	}
}

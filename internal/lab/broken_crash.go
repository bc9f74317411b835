package lab

import (
	"context"
)

// setNXForever is SETNX without expiry, and DEL at the end.
//
// Why it breaks: the holder dies (killed, power cut, panic before the DEL), and
// no process is left to delete the key. All others wait for ever.
// Cured by an expiry set in the same command, kept alive by a watchdog while
// the holder lives: the setnx store, the Redis hash.
func setNXForever() strategy {
	try := func(ctx context.Context, s *spin, owner string) (bool, error) {
		return s.setNX(ctx, owner, 0)
	}
	return strategy{
		name: "setnx, no expiry", group: groupBroken, defect: defectDeadlock, on: onRedis,
		why:     "the holder is killed, and its key stays for ever",
		cure:    "setnx store",
		attacks: []attack{crash(pointRead)},
		open:    openSpin(try, freeAnybodys), ledger: openCells,
	}
}

// setNXThenExpire is SETNX followed by EXPIRE.
//
// Why it breaks: the holder dies between the two commands, and the key has no
// expiry. The same as no expiry at all, only rarer, and therefore found later.
// Cured by SET NX PX, one command: the setnx store.
func setNXThenExpire() strategy {
	try := func(ctx context.Context, s *spin, owner string) (bool, error) {
		ok, err := s.setNX(ctx, owner, 0)
		if err != nil || !ok {
			return false, err
		}
		if err := s.setup.pause(ctx, pointHalf); err != nil {
			return false, err
		}
		return true, s.client.PExpire(ctx, s.key, s.setup.Lease).Err()
	}
	return strategy{
		name: "setnx, then expire", group: groupBroken, defect: defectDeadlock, on: onRedis,
		why:     "the holder is killed between SETNX and EXPIRE, and its key stays for ever",
		cure:    "setnx store",
		attacks: []attack{crash(pointHalf)},
		open:    openSpin(try, freeOwn), ledger: openCells,
	}
}

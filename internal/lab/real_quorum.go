package lab

import (
	"errors"

	"seckill/lock"
)

// multiLock is lock.All on three instances: held when every part is. A lock
// that one instance forgets is still held on the others.
func multiLock() strategy {
	return lockStrategy("multilock", onQuorum, "every one of three instances",
		func(s setup) (locker, error) { return openOnQuorum(s, lock.All) })
}

// redLock is lock.Majority on three instances: held when two parts are, so
// that one may be down.
func redLock() strategy {
	return lockStrategy("redlock", onQuorum, "two of three instances",
		func(s setup) (locker, error) { return openOnQuorum(s, lock.Majority) })
}

func openOnQuorum(s setup, compose func(...lock.Locker) *lock.Quorum) (locker, error) {
	l := newRealLock(s)
	parts := make([]lock.Locker, 0, len(s.Site.Quorum))
	for _, url := range s.Site.Quorum {
		client, err := newClient(url, s.commands)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		parts = append(parts, l.add(s, hashStore(client), client.Close))
	}
	l.locker = compose(parts...)
	return l, nil
}

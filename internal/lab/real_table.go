package lab

import (
	"context"

	"seckill/lock"
	"seckill/repository"
)

// mysqlTable is the lock table of MySQL, made by the product's migrations: a row
// per lock, with an owner, an expiry by the database's clock and a token. The
// account is in Redis, as that of every other lock.
func mysqlTable() strategy {
	return lockStrategy("mysql table", onMySQL, "a row per lock, expiry by the database's clock",
		func(s setup) (locker, error) {
			// Connections of its own, as another process would have.
			db, err := repository.Open(context.Background(), repository.Options{DSN: s.Site.DSN})
			if err != nil {
				return nil, err
			}
			l := newRealLock(s)
			l.locker = l.add(s, lock.NewMySQLStore(db.SQL()), db.Close)
			return l, nil
		})
}

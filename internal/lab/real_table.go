package lab

import (
	"context"
	"fmt"

	"seckill/lock"
	"seckill/repository"
)

// mysqlTable is the lock table of MySQL: a row per lock, with an owner, an
// expiry by the database's clock and a token. The account is in Redis, as that
// of every other lock.
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

// createLockTable makes the table of those locks.
func createLockTable(ctx context.Context, db *repository.Database) error {
	if !isMySQL(db) {
		return nil
	}
	if _, err := db.SQL().ExecContext(ctx, lock.MySQLTable(lock.DefaultTable)); err != nil {
		return fmt.Errorf("make the table of locks: %w", err)
	}
	return nil
}

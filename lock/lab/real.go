package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"seckill/internal/ids"
	"seckill/lock"
	"seckill/lock/driver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// realLocks are those of the product's own lock package.
func realLocks() []strategy {
	return []strategy{
		realLock("redis hash", onRedis, "re-entrant, watchdog, unlock messages; Redisson's layout", onOne(hashStore)),
		realLock("setnx store", onRedis, "SET NX PX and compare-and-delete, with a watchdog", onOne(setNXStore)),
		realLock("mysql table", onMySQL, "a row per lock, expiry by the database's clock", onTable),
		// A lock that one instance forgets is still held on the others.
		realLock("multilock", onQuorum, "every one of three instances", onThree(lock.All)),
		// One instance may be down.
		realLock("redlock", onQuorum, "two of three instances", onThree(lock.Majority)),
	}
}

func realLock(name string, on backing, why string, open func(setup) (lock.Locker, error)) strategy {
	return strategy{
		name: name, group: groupLock, on: on, why: why, attacks: lockAttacks(), ledger: openCells,
		open: openLocked(func(s setup) (locker, error) {
			l, err := open(s)
			return func(ctx context.Context, wait time.Duration) (hold, error) { return takeReal(ctx, l, s, wait) }, err
		}),
	}
}

// unlockBudget bounds one unlock.
const unlockBudget = 5 * time.Second

func takeReal(ctx context.Context, l lock.Locker, s setup, wait time.Duration) (hold, error) {
	options := []lock.Option{lock.Wait(wait)}
	if s.Fixed {
		options = append(options, lock.LeaseTime(s.Lease))
	}
	lease, err := l.Lock(ctx, options...)
	if errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrUnsynced) {
		err = errors.Join(errRefused, err)
	}
	if err != nil {
		return hold{}, err
	}
	return hold{lease.Context(), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, unlockBudget)
		defer cancel()
		return lease.UnlockContext(ctx)
	}}, nil
}

// mutex is a lock in a store, of a client of the setup's own.
func (s setup) mutex(store driver.Store) lock.Locker {
	client := lock.New(store, lock.WatchdogLease(s.Lease))
	s.undo.add(func(ctx context.Context) error {
		if err := client.Close(ctx); err != nil && !errors.Is(err, lock.ErrUnknown) { // its server may have been killed
			return fmt.Errorf("close the locks: %w", err)
		}
		return nil
	})
	return client.Mutex(s.key("lock"))
}

// hashStore lets a call take as long as one to the account, because the embedded servers
// of a busy machine are slow.
func hashStore(_ setup, c *redis.Client) driver.Store {
	return lock.NewRedisStore(c, lock.CallTimeout(ioTimeout))
}

func setNXStore(_ setup, c *redis.Client) driver.Store {
	return lock.NewSetNXStore(c, lock.CallTimeout(ioTimeout))
}

func onOne(store func(setup, *redis.Client) driver.Store) func(setup) (lock.Locker, error) {
	return func(s setup) (lock.Locker, error) {
		client, err := s.connect(s.Site.Redis)
		if err != nil {
			return nil, err
		}
		return s.mutex(store(s, client)), nil
	}
}

func onThree(compose func(...lock.Locker) *lock.Quorum) func(setup) (lock.Locker, error) {
	return func(s setup) (lock.Locker, error) {
		var parts []lock.Locker
		for _, url := range s.Site.Quorum {
			client, err := s.connect(url)
			if err != nil {
				return nil, err
			}
			parts = append(parts, s.mutex(hashStore(s, client)))
		}
		return compose(parts...), nil
	}
}

// onTable is the lock table that the product's migrations make, over connections of
// its own, as another process would have. The account is in Redis all the same.
func onTable(s setup) (lock.Locker, error) {
	db, err := s.database()
	if err != nil {
		return nil, err
	}
	return s.mutex(lock.NewMySQLStore(db.SQL())), nil
}

// database opens connections of the work's own to the run's database.
func (s setup) database() (*sqldb.Database, error) {
	db, err := sqldb.Open(context.Background(), sqldb.Options{DSN: s.Site.DSN})
	if err == nil {
		s.undo.add(func(context.Context) error { return db.Close() })
	}
	return db, err
}

// stocks are the ways to sell without a lock above the database.
func stocks() []strategy {
	return []strategy{
		stock(repository.StockConditional, onSQL, "the UPDATE states what it relies on"),
		stock(repository.StockPessimistic, onMySQL, "SELECT … FOR UPDATE before the read"),
		stock(repository.StockOptimistic, onSQL, "compares a version, begins anew"),
		{
			name: "database constraint", group: groupStock, on: onSQL,
			why:     "relative updates; CHECK (remaining >= 0) refuses the unit too many",
			attacks: []attack{overlap()},
			open:    openOnRow(sellUnderConstraint), ledger: openRow,
		},
		{
			name: "double save, unique key", group: groupStock, on: onSQL,
			why:     "the second delivery finds the first in the table, in the same transaction",
			attacks: []attack{twice()}, open: openMessages(true), ledger: openUnits,
		},
	}
}

// stock is one of the product's own strategies to sell: orders made by the
// repository, in the product's own tables. The account is the number of orders.
func stock(how repository.StockStrategy, on backing, why string) strategy {
	return strategy{
		name: "stock: " + string(how), group: groupStock, on: on, why: why, attacks: []attack{heldRow()},
		open: func(s setup) (perform, error) {
			orders, err := repository.NewOrders(s.db, repository.OrderOptions{Strategy: how, PaymentWindow: saleWindow})
			return func(ctx context.Context) (tally, error) { return sellOne(ctx, orders, s.Name) }, err
		},
		ledger: func(s setup) ledger { return sale{s} },
	}
}

// saleWindow is how long the lab's vouchers are on sale: longer than any run.
const saleWindow = time.Hour

// sellOne sells one unit to a user of its own.
func sellOne(ctx context.Context, orders *repository.Orders, voucher string) (tally, error) {
	unique, err := ids.New()
	if err != nil {
		return tally{}, err
	}
	began := time.Now()
	outcomes, err := orders.CreateOrders(ctx, []model.Order{{
		ID: model.OrderID(unique, voucher), VoucherID: voucher, UserID: unique,
	}})
	if err == nil {
		err = outcomes[0].Err
	}
	if refusal, ok := errors.AsType[*model.Error](err); ok && refusal.Code == model.CodeSoldOut {
		told := answered(began)
		told.SoldOut = 1
		return told, nil
	}
	if err != nil {
		return tally{}, fmt.Errorf("sell a unit: %w", err)
	}
	return done(began, 1), nil
}

// sale is the voucher of a free run or an attack, and the product's row of it.
type sale struct{ setup }

func (s sale) open(ctx context.Context, stock int64) error {
	now := time.Now()
	_, err := repository.NewVouchers(s.db, "CNY").Create(ctx, s.Name, model.NewVoucher{
		Title: "lab", Stock: stock, BeginAt: now.Add(-saleWindow), EndAt: now.Add(saleWindow),
	}, model.Idempotency{})
	return err
}

func (s sale) read(ctx context.Context) (figures, error) {
	return row{s.db.SQL(), s.Name}.readBy(ctx, s.db.SQL(),
		"SELECT (SELECT COUNT(*) FROM orders WHERE voucher_id = vouchers.id), remaining FROM vouchers WHERE id = ?")
}

// sellUnderConstraint decides by a stock that may have changed since it was read; the
// database refuses the sale then.
func sellUnderConstraint(ctx context.Context, r row, stand pause) (tally, error) {
	began := time.Now()
	found, err := r.read(ctx)
	if err != nil {
		return tally{}, err
	}
	if err := stand(ctx, pointRead); err != nil {
		return tally{}, err
	}
	sold := found.sell()
	err = r.write(ctx, r.db, "UPDATE lab_accounts SET balance = balance + 1, remaining = remaining - ? WHERE name = ?", sold)
	if refusedByCheck(err) {
		sold = 0
		err = r.write(ctx, r.db, "UPDATE lab_accounts SET balance = balance + 1 WHERE name = ?")
	}
	if err != nil {
		return tally{}, err
	}
	return done(began, sold), nil
}

// checkMariaDB and checkMySQL are the numbers of a violated CHECK.
const checkMariaDB, checkMySQL = 4025, 3819

func refusedByCheck(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == checkMariaDB || e.Number == checkMySQL
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == sqlite3.SQLITE_CONSTRAINT_CHECK
}

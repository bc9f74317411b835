package lab

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
	"seckill/model"
	"seckill/repository"
)

// realLock is a lock of the product's own lock package, as one process uses it.
type realLock struct {
	locker  lock.Locker
	options []lock.Option
	clients []*lock.Client
	closers []func() error // of what the stores stand on
}

// redisHash is the product's default: re-entrant, in Redisson's layout.
func redisHash() strategy {
	return lockStrategy("redis hash", onRedis, "re-entrant, watchdog, unlock messages; Redisson's layout",
		func(s setup) (locker, error) { return openOnRedis(s, hashStore) })
}

// setNXStore is SET NX PX and compare-and-delete, with a watchdog and re-entry
// above it.
func setNXStore() strategy {
	return lockStrategy("setnx store", onRedis, "SET NX PX and compare-and-delete, with a watchdog",
		func(s setup) (locker, error) {
			return openOnRedis(s, func(c *redis.Client) lock.Store { return lock.NewSetNXStore(c, patient()) })
		})
}

func lockStrategy(name string, on backing, why string, open func(setup) (locker, error)) strategy {
	return strategy{
		name: name, group: groupLock, on: on, why: why, attacks: lockAttacks(),
		open: openLocked(open), ledger: openCells,
	}
}

func hashStore(c *redis.Client) lock.Store { return lock.NewRedisStore(c, patient()) }

// patient lets a call take as long as one to the account, because the embedded servers
// of a busy machine are slow.
func patient() lock.RedisOption { return lock.CallTimeout(ioTimeout) }

// lockName is the same on every instance.
func lockName(s setup) string { return s.Site.key(s.Name + ":lock") }

func newRealLock(s setup) *realLock {
	l := &realLock{}
	if s.Fixed {
		l.options = append(l.options, lock.LeaseTime(s.Lease))
	}
	return l
}

// add makes a client of a store that stands on something to be closed after it.
func (l *realLock) add(s setup, store lock.Store, under func() error) *lock.Mutex {
	client := lock.New(store, lock.WatchdogLease(s.Lease))
	l.clients = append(l.clients, client)
	l.closers = append(l.closers, under)
	return client.Mutex(lockName(s))
}

func openOnRedis(s setup, store func(*redis.Client) lock.Store) (locker, error) {
	client, err := newClient(s.Site.Redis, s.commands)
	if err != nil {
		return nil, err
	}
	l := newRealLock(s)
	l.locker = l.add(s, store(client), client.Close)
	return l, nil
}

func (l *realLock) lock(ctx context.Context, wait time.Duration) (hold, error) {
	lease, err := l.locker.Lock(ctx, append([]lock.Option{lock.Wait(wait)}, l.options...)...)
	switch {
	case errors.Is(err, lock.ErrTimeout):
		return hold{}, errors.Join(errStuck, err)
	case errors.Is(err, lock.ErrLost):
		return hold{}, errors.Join(errRefused, err)
	case err != nil:
		return hold{}, err
	}
	return hold{lease.Context(), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, closeBudget)
		defer cancel()
		return lease.UnlockContext(ctx)
	}}, nil
}

// closeBudget bounds the end of a lock client, which waits for its unlocks.
const closeBudget = 5 * time.Second

func (l *realLock) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeBudget)
	defer cancel()
	var errs []error
	for i, client := range l.clients {
		errs = append(errs, client.Close(ctx), l.closers[i]())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the locks: %w", err)
	}
	return nil
}

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

// stock is one of the product's own strategies to sell: orders made by the
// repository, in the product's own tables. The account is the number of orders.
func stock(how repository.StockStrategy, on backing, why string) strategy {
	return strategy{
		name: "stock: " + string(how), group: groupStock, on: on, why: why,
		attacks: []attack{heldRow()},
		open: func(_ context.Context, s setup) (performer, error) {
			orders, err := repository.NewOrders(s.db, repository.OrderOptions{Strategy: how, PaymentWindow: saleWindow})
			if err != nil {
				return nil, err
			}
			return &seller{orders: orders, voucher: s.Name}, nil
		},
		ledger: func(_ context.Context, s setup) (ledger, error) {
			return sale{vouchers: repository.NewVouchers(s.db, "CNY"), voucher: s.Name}, nil
		},
	}
}

// saleWindow is how long the lab's vouchers are on sale: longer than any run.
const saleWindow = time.Hour

type seller struct {
	orders  *repository.Orders
	voucher string
}

// perform sells one unit to a user of its own.
func (w *seller) perform(ctx context.Context) (outcome, error) {
	unique, err := ids.New()
	if err != nil {
		return outcome{}, err
	}
	began := time.Now()
	outcomes, err := w.orders.CreateOrders(ctx, []model.Order{{
		ID: model.OrderID(unique, w.voucher), VoucherID: w.voucher, UserID: unique,
	}})
	if err != nil {
		return outcome{}, fmt.Errorf("sell a unit: %w", err)
	}
	waited := time.Since(began)
	if refusal, ok := errors.AsType[*model.Error](outcomes[0].Err); ok && refusal.Code == model.CodeSoldOut {
		return outcome{Result: resultSoldOut, Waited: waited}, nil
	}
	if outcomes[0].Err != nil {
		return outcome{}, fmt.Errorf("sell a unit: %w", outcomes[0].Err)
	}
	return outcome{Result: resultDone, Sold: true, Waited: waited}, nil
}

func (*seller) close() error { return nil }

// sale is the voucher of a free run or an attack.
type sale struct {
	vouchers *repository.Vouchers
	voucher  string
}

func (l sale) open(ctx context.Context, stock int64) error {
	now := time.Now()
	_, err := l.vouchers.Create(ctx, l.voucher, model.NewVoucher{
		Title: "lab", Stock: stock, BeginAt: now.Add(-saleWindow), EndAt: now.Add(saleWindow),
	}, model.Idempotency{})
	return err
}

func (l sale) read(ctx context.Context) (figures, error) {
	stats, err := l.vouchers.Stats(ctx, l.voucher)
	if err != nil {
		return figures{}, err
	}
	var orders int64
	for _, n := range stats.OrdersByStatus {
		orders += n
	}
	return figures{Balance: orders, Remaining: stats.Remaining}, nil
}

func (sale) close() error { return nil }

// databaseConstraint has no lock at all: relative updates, and a CHECK that no stock
// falls below zero. It decides by a stock that may have changed since it was read; the
// database refuses the sale then.
func databaseConstraint() strategy {
	return strategy{
		name: "database constraint", group: groupStock, on: onSQL,
		why:     "relative updates; CHECK (remaining >= 0) refuses the unit too many",
		attacks: []attack{overlap()},
		open:    openOnRow(sellUnderConstraint), ledger: openRow,
	}
}

func sellUnderConstraint(ctx context.Context, w onRow) (outcome, error) {
	began := time.Now()
	found, err := w.read(ctx)
	if err != nil {
		return outcome{}, err
	}
	if err := w.setup.pause(ctx, pointRead); err != nil {
		return outcome{}, err
	}
	sold := found.Remaining > 0
	if sold {
		err = w.write(ctx, w.db, "UPDATE lab_accounts SET balance = balance + 1, remaining = remaining - 1 WHERE name = ?")
		if refusedByCheck(err) {
			sold, err = false, nil
		}
	}
	if err == nil && !sold {
		err = w.write(ctx, w.db, "UPDATE lab_accounts SET balance = balance + 1 WHERE name = ?")
	}
	if err != nil {
		return outcome{}, err
	}
	return outcome{Result: resultDone, Sold: sold, Waited: time.Since(began)}, nil
}

// The numbers of a violated CHECK.
const (
	checkMariaDB = 4025
	checkMySQL   = 3819
)

func refusedByCheck(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == checkMariaDB || e.Number == checkMySQL
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == sqlite3.SQLITE_CONSTRAINT_CHECK
}

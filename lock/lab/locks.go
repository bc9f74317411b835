package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/internal/poll"
	"seckill/lock"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// locker takes a lock under test, as one process sees it. It ends with lock.ErrTimeout when it is not free within wait.
type locker = func(ctx context.Context, wait time.Duration) hold

type hold struct {
	ctx    context.Context //nolint:containedctx // for the work; it ends when the holder knows the lock is lost
	unlock func(ctx context.Context)
}

type sale = func(u unit) answer

func alone(work sale) opener {
	return func(s setup) perform {
		return func(ctx context.Context) answer { return work(unit{setup: s, ctx: ctx}) }
	}
}

// under does the work under the lock that open makes. That the lock is not to be had, or was lost, is an answer.
func under(open func(setup) locker, work sale) opener {
	return func(s setup) perform {
		take := open(s)
		return func(ctx context.Context) (told answer) {
			asked := time.Now()
			err := try(func() {
				held := s.told(ctx, take(ctx, s.Wait))
				waited := time.Since(asked)
				err := try(func() {
					if s.Reenter {
						inner := take(held.ctx, s.Wait) //nolint:contextcheck // the owner travels in the context of what is held
						defer inner.unlock(context.WithoutCancel(ctx))
					}
					told = work(unit{setup: s, ctx: ctx, held: held})
				})
				told.Waited = waited
				if ctx.Err() != nil {
					stop(err) // who is killed unlocks nothing
				}
				// The error of an unlock counts only beside that of the work: the figures tell whether it went well.
				if unlocked := try(func() { held.unlock(context.WithoutCancel(ctx)) }); err != nil {
					stop(errors.Join(err, unlocked))
				}
			})
			switch {
			case errors.Is(err, lock.ErrTimeout):
				told.End = pointStuck
			case errors.Is(err, errRefused):
				told.End = pointRefused
			default:
				stop(err)
			}
			return told
		}
	}
}

// told reports that a lock is held, lost and given back.
func (s setup) told(ctx context.Context, held hold) hold {
	tell := func(p point) { _ = try(func() { s.at(ctx, p) }) }
	tell(pointHeld)
	deaf := context.AfterFunc(held.ctx, func() { //nolint:contextcheck // that of what is held
		if ctx.Err() == nil {
			tell(pointLost)
		}
	})
	once := sync.OnceFunc(func() { tell(pointGiven) })
	return hold{held.ctx, func(ctx context.Context) {
		deaf() // an end that comes with the unlock is no loss
		once() // before it: the next one may have the lock before this one has heard so
		held.unlock(ctx)
	}}
}

// inCells is an account and a stock kept as two plain Redis keys. Nothing but the lock under test protects them.
func inCells() ledger {
	return ledger{open: func(u unit, stock int64) { u.write(figures{Remaining: stock}) }, read: unit.read}
}

func (u unit) read() (f figures) {
	values := got(u.redis.MGet(u.ctx, u.key("balance"), u.key("remaining")).Result())("read the account")
	_, err := fmt.Sscan(fmt.Sprintln(values...), &f.Balance, &f.Remaining)
	must("read the account", err)
	return f
}

func (u unit) write(f figures) {
	must("write the account", u.redis.MSet(u.ctx, u.key("balance"), f.Balance, u.key("remaining"), f.Remaining).Err())
}

// sellInCells reads, thinks and writes, unless the holder was told that its lock is lost.
func sellInCells(u unit) answer {
	found := u.read()
	u.stand(pointRead)
	if u.held.ctx.Err() != nil && u.ctx.Err() == nil {
		stop(errRefused)
	}
	sold := found.sell()
	u.write(found)
	u.stand(pointWritten)
	return answer{End: pointDone, Sold: sold}
}

func openNone(setup) locker {
	return func(ctx context.Context, _ time.Duration) hold { return hold{ctx, func(context.Context) {}} }
}

// openLocal is a sync.Mutex, or Java's synchronized, that can be waited for with a bound.
func openLocal(setup) locker {
	var mutex sync.Mutex
	return func(ctx context.Context, wait time.Duration) hold {
		within(ctx, wait, mutex.TryLock)
		return hold{ctx, func(context.Context) { mutex.Unlock() }}
	}
}

// spinEvery is the pause between two tries, as the tutorials have it: a few milliseconds.
const spinEvery = 2 * time.Millisecond

func within(ctx context.Context, wait time.Duration, works func() bool) {
	budget, cancel := context.WithTimeoutCause(ctx, wait, lock.ErrTimeout)
	defer cancel()
	if poll.Until(budget, spinEvery, func() (bool, error) { return works(), nil }) != nil {
		stop(context.Cause(budget))
	}
}

// key is the lock of the tutorials, for one owner: try, pause, again. Who comes next is luck.
type key struct {
	unit

	client      redis.UniversalClient
	name, owner string
	end         context.CancelFunc // of its watchdog
}

type step = func(k *key) bool

// right is a SETNX lock without the mistakes of the others, but for the missing watchdog.
func right(s setup) locker { return spinning(takeOwn, freeOwn)(s) }

// spinning makes a lock whose holds have the caller's context: these locks do not know when they are lost.
func spinning(take, free step) func(setup) locker {
	return func(s setup) locker {
		client := s.connect(s.Redis)
		return func(ctx context.Context, wait time.Duration) hold {
			k := &key{unit{setup: s, ctx: ctx}, client, s.key("lock"), newID(), nil}
			within(ctx, wait, func() bool { return take(k) })
			return hold{ctx, func(ctx context.Context) {
				k.ctx = ctx
				free(k)
			}}
		}
	}
}

func (k *key) do(command string, args ...any) bool {
	answer, err := k.client.Do(k.ctx, append([]any{command, k.name}, args...)...).Result()
	if !errors.Is(err, redis.Nil) {
		must(command, err)
	}
	return answer != nil && answer != int64(0)
}

func (k *key) set() bool    { return k.do("set", k.owner, "px", k.Lease.Milliseconds()) }
func (k *key) expire() bool { return k.do("pexpire", k.Lease.Milliseconds()) }

func (k *key) get() string {
	found, err := k.client.Get(k.ctx, k.name).Result()
	if !errors.Is(err, redis.Nil) {
		must("get the key", err)
	}
	return found
}

// script runs one with KEYS[1], the lock, ARGV[1], the owner, and ARGV[2], the lease in ms.
func (k *key) script(text string) bool {
	script := redis.NewScript(text).Run(k.ctx, k.client, []string{k.name}, k.owner, k.Lease.Milliseconds())
	return got(script.Bool())("run a script")
}

// takeOwn is the one correct way to begin: value and expiry in one command.
func takeOwn(k *key) bool { return k.do("set", k.owner, "nx", "px", k.Lease.Milliseconds()) }

func takeForEver(k *key) bool { return k.do("set", k.owner, "nx") }

// freeOwn is the correct end of a SETNX lock: it deletes the key if it is still the owner's, in one step.
func freeOwn(k *key) bool {
	return k.script(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)
}

func freeAnybodys(k *key) bool { return k.do("del") }

const (
	renewAnybodys = `return redis.call('pexpire', KEYS[1], ARGV[2])`
	renewOwn      = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`

	renewals = 3 // in a lease: one may fail
)

// watched is a SETNX lock with a watchdog. A worker stands between taking the lock and starting that.
func watched(renew string) func(setup) locker {
	return spinning(func(k *key) bool {
		if !takeOwn(k) || !k.stand(pointHalf) {
			return false
		}
		own := *k
		own.ctx, k.end = context.WithCancel(k.ctx)
		go poll.Every(own.ctx, k.Lease/renewals, func() { _ = try(func() { own.script(renew) }) })
		return true
	}, func(k *key) bool {
		k.end()
		return freeOwn(k)
	})
}

func product(open func(setup) lock.Locker) func(setup) locker {
	return func(s setup) locker {
		l := open(s)
		return func(ctx context.Context, wait time.Duration) hold {
			options := []lock.Option{lock.Wait(wait)}
			if s.Fixed {
				options = append(options, lock.LeaseTime(s.Lease))
			}
			lease, err := l.Lock(ctx, options...)
			if errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrUnsynced) {
				err = errors.Join(errRefused, err)
			}
			stop(err)
			return hold{lease.Context(), func(ctx context.Context) { stop(lease.UnlockContext(ctx)) }}
		}
	}
}

func (s setup) mutex(store lock.Store) lock.Locker {
	client := lock.New(store, lock.WatchdogLease(s.Lease))
	s.undo.add(func(ctx context.Context) {
		if err := client.Close(ctx); !errors.Is(err, lock.ErrUnknown) { // its server may have been killed
			must("close the locks", err)
		}
	})
	return client.Mutex(s.key("lock"))
}

// onOne is a lock on one Redis. Under attack so many replicas confirm it; the servers of the free run have none.
func onOne(store func(redis.UniversalClient, ...lock.RedisOption) lock.Store, synced int) func(setup) lock.Locker {
	return func(s setup) lock.Locker {
		options := []lock.RedisOption{lock.CallTimeout(certain)}
		if s.Load == nil {
			options = append(options, lock.Synced(synced))
		}
		return s.mutex(store(s.connect(s.Redis), options...))
	}
}

func onThree(compose func(...lock.Locker) *lock.Quorum) func(setup) lock.Locker {
	return func(s setup) lock.Locker {
		var parts []lock.Locker
		for _, url := range s.Quorum {
			parts = append(parts, s.mutex(lock.NewRedisStore(s.connect(url), lock.CallTimeout(certain))))
		}
		return compose(parts...)
	}
}

// onTable is the lock table of the product's migrations, over connections of its own. The account is in Redis.
func onTable(s setup) lock.Locker {
	db := got(sqldb.Open(context.Background(), sqldb.Options{DSN: s.DSN}))("open the database")
	s.undo.closes(db)
	return s.mutex(lock.NewMySQLStore(db.SQL()))
}

// accounts is the lab's table: account and stock as a row with the last guard, and as units without.
const accounts = `CREATE TABLE IF NOT EXISTS lab_accounts (
			name VARCHAR(64) NOT NULL PRIMARY KEY,
			balance BIGINT NOT NULL DEFAULT 0,
			remaining BIGINT NOT NULL DEFAULT 0,
			units BIGINT NOT NULL DEFAULT 0,
			version BIGINT NOT NULL DEFAULT 0,
			CONSTRAINT lab_remaining_not_negative CHECK (remaining >= 0)
		)`

const (
	insertAccount = "INSERT INTO lab_accounts (remaining, units, name) VALUES (?, ?, ?)"
	selectAccount = "SELECT balance, remaining, version FROM lab_accounts WHERE name = ?"
	selectUnits   = "SELECT balance, units, version FROM lab_accounts WHERE name = ?"
	updateAccount = "UPDATE lab_accounts SET balance = ?, remaining = ? WHERE name = ?"
	updateVersion = "UPDATE lab_accounts SET balance = ?, remaining = ?, version = ? WHERE version = ? AND name = ?"
	addAndTake    = "UPDATE lab_accounts SET balance = balance + 1, remaining = remaining - ? WHERE name = ?"
	takeUnit      = "UPDATE lab_accounts SET balance = balance + 1, units = units - 1 WHERE name = ?"
)

func inRow(query string) ledger {
	return ledger{
		open: func(u unit, stock int64) { u.change(insertAccount, stock, stock) },
		read: func(u unit) figures { return u.look(query) },
	}
}

func (u unit) look(query string) (f figures) {
	must("read the account", u.by().QueryRowContext(u.ctx, query, u.Name).Scan(&f.Balance, &f.Remaining, &f.version))
	return f
}

// change tells how many rows a statement found. Its last argument is the account's name.
func (u unit) change(statement string, args ...any) int64 {
	result := got(u.by().ExecContext(u.ctx, statement, append(args, u.Name)...))("write the account")
	return got(result.RowsAffected())("count the rows")
}

func (u unit) by() interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
} {
	if u.tx != nil {
		return u.tx
	}
	return u.db.SQL()
}

// transacted does the work in a transaction, which is committed at the end if the work has not done it.
func transacted(work sale) sale {
	return func(u unit) answer {
		u.tx = got(u.db.SQL().BeginTx(u.ctx, nil))("begin a transaction")
		defer func() { _ = u.tx.Rollback() }() // nothing after the commit
		told := work(u)
		if err := u.tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
			must("commit", err)
		}
		return told
	}
}

// sellForUpdate locks the row with SELECT … FOR UPDATE behind its reading; mended, it uses the second SELECT.
func sellForUpdate(mended bool) sale {
	return transacted(func(u unit) answer {
		return u.trade(selectAccount, func(found figures) (sold int64, done bool) {
			if now := u.look(selectAccount + " FOR UPDATE"); mended {
				found = now
			}
			sold = found.sell()
			return sold, u.change(updateAccount, found.Balance, found.Remaining) == 1
		})
	})
}

// sellInTransaction gives the lock back inside the transaction. Mended, it commits before.
func sellInTransaction(mended bool) sale {
	return transacted(func(u unit) answer {
		return u.trade(selectAccount, func(found figures) (sold int64, done bool) {
			sold = found.sell()
			u.change(updateAccount, found.Balance, found.Remaining)
			if mended {
				must("commit", u.tx.Commit())
			}
			u.held.unlock(u.ctx) // the unlock after the work then does nothing
			return sold, u.stand(pointFreed)
		})
	})
}

// sellUnits looks whether there is a unit, and takes one where the guard allows it.
func sellUnits(guard string) sale {
	return func(u unit) answer {
		told := u.trade(selectUnits, func(found figures) (sold int64, done bool) {
			if found.Remaining > 0 {
				sold = u.change(takeUnit + guard)
			}
			return sold, true
		})
		if told.Sold == 0 {
			told.End = pointSoldOut
		}
		return told
	}
}

// sellByVersion writes if the version is the one it read, else begins anew. It raises the version by a step.
func sellByVersion(step int64) sale {
	return func(u unit) answer {
		return u.trade(selectAccount, func(found figures) (sold int64, done bool) {
			sold = found.sell()
			return sold, u.change(updateVersion, found.Balance, found.Remaining, found.version+step, found.version) == 1
		})
	}
}

// sellUnderConstraint decides by a stock that may have changed since it was read; the database refuses the sale then.
func sellUnderConstraint(u unit) answer {
	return u.trade(selectAccount, func(found figures) (sold int64, done bool) {
		sold = found.sell()
		err := try(func() { u.change(addAndTake, sold) })
		if refusedByCheck(err) {
			sold, err = 0, try(func() { u.change(addAndTake, 0) })
		}
		stop(err)
		return sold, true
	})
}

const saleWindow = time.Hour

// stock is one of the product's strategies, in its own tables. The account is the number of orders.
func stock(how model.StockStrategy, why string) strategy {
	return strategy{
		Name: "stock: " + string(how), Why: why, On: onMySQL, attacks: []attack{heldRow()},
		ledger: ledger{
			open: func(u unit, stock int64) {
				now := time.Now()
				voucher := model.VoucherFields{
					Title: "lab", Price: 1, Stock: stock, BeginAt: now.Add(-saleWindow),
					EndAt: now.Add(saleWindow),
				}
				_, err := repository.NewVouchers(u.db, "CNY").Create(u.ctx, u.Name, voucher, "", model.Idempotency{})
				must("make a voucher", err)
			},
			read: func(u unit) figures {
				return u.look("SELECT (SELECT COUNT(*) FROM orders WHERE voucher_id = vouchers.id), remaining, 0 FROM vouchers WHERE id = ?")
			},
		},
		open: func(s setup) perform {
			options := repository.OrderOptions{Strategy: how, PaymentWindow: saleWindow}
			orders := got(repository.NewOrders(s.db, options))("prepare the orders")
			return alone(func(u unit) answer { return u.order(orders) })(s)
		},
	}
}

func (u unit) order(orders *repository.Orders) answer {
	user := got(ids.New())("make an id")
	order := model.Order{ID: model.OrderID(user, u.Name), VoucherID: u.Name, UserID: user}
	outcomes, err := orders.CreateOrders(u.ctx, []model.Order{order})
	if err == nil {
		err = outcomes[0].Err
	}
	if refusal, ok := errors.AsType[*model.Error](err); ok && refusal.Code == model.CodeSoldOut {
		return answer{End: pointSoldOut}
	}
	must("sell a unit", err)
	return answer{End: pointDone, Sold: 1}
}

// Numbers of MySQL's and MariaDB's error of a violated CHECK.
const checkMariaDB, checkMySQL = 4025, 3819

func refusedByCheck(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && (e.Number == checkMariaDB || e.Number == checkMySQL)
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"seckill/internal/ids"
	"seckill/internal/poll"
	"seckill/lock"
	"seckill/model"
	"seckill/repository"
)

// locker takes a lock under test, as one process sees it. It ends with lock.ErrTimeout when it is not free within wait.
type locker = func(ctx context.Context, wait time.Duration) hold

type hold struct {
	ctx    context.Context //nolint:containedctx // for the work; it ends when the holder knows the lock is lost
	unlock func()
}

// unit is one unit of work, or what is done before and after it.
type unit struct {
	setup

	ctx  context.Context //nolint:containedctx // of the unit
	held hold
	tx   *sql.Tx // where it works in one
}

func (u unit) stand(p point) bool {
	u.at(u.ctx, p)
	return true
}

// once does the work under the lock. That the lock is not to be had, or was lost, is an answer.
func (w way) once(u unit, take locker) (told answer) {
	if take == nil {
		return w.work(u)
	}
	asked := time.Now()
	err := try(func() {
		u.held = u.told(take(u.ctx, u.Wait))
		waited := time.Since(asked)
		err := try(func() {
			if u.Reenter {
				inner := take(u.held.ctx, u.Wait) // the owner travels in the context of what is held
				defer inner.unlock()
			}
			told = w.work(u)
		})
		told.Waited = waited
		if u.ctx.Err() != nil {
			stop(err) // who is killed unlocks nothing
		}
		// The error of an unlock counts only beside that of the work: the figures tell whether it went well.
		if unlocked := try(u.held.unlock); err != nil {
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

// told reports that a lock is held, lost and given back. Its second unlock does nothing.
func (u unit) told(held hold) hold {
	tell := func(p point) { _ = try(func() { u.stand(p) }) }
	tell(pointHeld)
	deaf := context.AfterFunc(held.ctx, func() {
		if u.ctx.Err() == nil {
			tell(pointLost)
		}
	})
	return hold{held.ctx, sync.OnceFunc(func() {
		deaf()           // an end that comes with the unlock is no loss
		tell(pointGiven) // before it: the next one may have the lock before this one has heard so
		held.unlock()
	})}
}

// openLocal is a sync.Mutex, or Java's synchronized, that can be waited for with a bound.
func openLocal(setup) locker {
	var mutex sync.Mutex
	return func(ctx context.Context, wait time.Duration) hold {
		within(ctx, wait, mutex.TryLock)
		return hold{ctx, mutex.Unlock}
	}
}

// within tries with pauses as the tutorials have them, of a few milliseconds. Who comes next is luck.
func within(ctx context.Context, wait time.Duration, works func() bool) {
	budget, cancel := context.WithTimeoutCause(ctx, wait, lock.ErrTimeout)
	defer cancel()
	if poll.Until(budget, 2*time.Millisecond, func() (bool, error) { return works(), nil }) != nil {
		stop(context.Cause(budget))
	}
}

// key is the lock of the tutorials, for one owner.
type key struct {
	unit

	client redis.UniversalClient
	owner  string
	end    context.CancelFunc // of its watchdog
}

type step = func(k *key) bool

// spinning makes a lock whose holds have the caller's context: these locks do not know when they are lost.
func spinning(take, free step) way {
	return way{sell: sell, lock: func(s setup) locker {
		client := s.undo.redis(s.Quorum[0])
		return func(ctx context.Context, wait time.Duration) hold {
			k := &key{unit{setup: s, ctx: ctx}, client, newID(), nil}
			within(ctx, wait, func() bool { return take(k) })
			return hold{ctx, func() {
				k.ctx = context.WithoutCancel(ctx)
				free(k)
			}}
		}
	}}
}

// do returns a command's answer; nil where there is none.
func (k *key) do(command string, args ...any) any {
	answer, err := k.client.Do(k.ctx, append([]any{command, k.key()}, args...)...).Result()
	if !errors.Is(err, redis.Nil) {
		must(command, err)
	}
	return answer
}

func (k *key) set(how ...any) bool { return k.do("set", append([]any{k.owner}, how...)...) != nil }

// script runs one with KEYS[1], the lock, ARGV[1], the owner, and ARGV[2], the lease in ms.
func (k *key) script(text string) bool {
	script := redis.NewScript(text).Run(k.ctx, k.client, []string{k.key()}, k.owner, k.Lease.Milliseconds())
	return got(script.Bool())("run a script")
}

// takeOwn is the one correct way to begin: value and expiry in one command.
func takeOwn(k *key) bool { return k.set("nx", "px", k.Lease.Milliseconds()) }

func takeForEver(k *key) bool { return k.set("nx") }

// freeOwn is the correct end of a SETNX lock: it deletes the key if it is still the owner's, in one step.
func freeOwn(k *key) bool {
	return k.script(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)
}

func freeAnybodys(k *key) bool { return k.do("del") == int64(1) }

const renewals = 3 // in a lease: one may fail

// takeWatched starts a watchdog, which renews whatever key there is. A worker stands between taking the lock and that.
func takeWatched(k *key) bool {
	if !takeOwn(k) || !k.stand(pointHalf) {
		return false
	}
	own := *k
	own.ctx, k.end = context.WithCancel(k.ctx)
	go poll.Every(own.ctx, k.Lease/renewals, func() {
		_ = try(func() { own.script(`return redis.call('pexpire', KEYS[1], ARGV[2])`) })
	})
	return true
}

func freeWatched(k *key) bool {
	k.end()
	return freeOwn(k)
}

func product(open func(setup) lock.Locker) way {
	return way{sell: sell, lock: func(s setup) locker {
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
			return hold{lease.Context(), func() { stop(lease.UnlockContext(context.WithoutCancel(ctx))) }}
		}
	}}
}

func (s setup) mutex(store lock.Store) lock.Locker {
	client := lock.New(store, lock.WatchdogLease(s.Lease))
	s.undo.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.undo.ctx), certain)
		defer cancel()
		if err := client.Close(ctx); !errors.Is(err, lock.ErrUnknown) { // its server may have been killed
			must("close the locks", err)
		}
	})
	return client.Mutex(s.key())
}

func onOne(store func(redis.UniversalClient, ...lock.RedisOption) lock.Store) func(setup) lock.Locker {
	return func(s setup) lock.Locker {
		return s.mutex(store(s.undo.redis(s.Quorum[0]), lock.CallTimeout(certain)))
	}
}

func onThree(compose func(...lock.Locker) *lock.Quorum) func(setup) lock.Locker {
	return func(s setup) lock.Locker {
		var parts []lock.Locker
		for _, url := range s.Quorum {
			parts = append(parts, s.mutex(lock.NewRedisStore(s.undo.redis(url), lock.CallTimeout(certain))))
		}
		return compose(parts...)
	}
}

// onTable is the lock table of the product's migrations, over connections of its own.
func onTable(s setup) lock.Locker {
	return s.mutex(lock.NewMySQLStore(s.undo.database(s.undo.ctx, s.DSN).SQL()))
}

// accounts is the lab's table: an account and a stock. The last guard is the constraint, but where a sale lifts it.
const accounts = `CREATE TABLE IF NOT EXISTS lab_accounts (
			name VARCHAR(64) NOT NULL PRIMARY KEY,
			balance BIGINT NOT NULL DEFAULT 0,
			remaining BIGINT NOT NULL DEFAULT 0,
			version BIGINT NOT NULL DEFAULT 0,
			unguarded BOOLEAN NOT NULL DEFAULT FALSE,
			CONSTRAINT lab_remaining_not_negative CHECK (remaining >= 0 OR unguarded)
		)`

// The account of a voucher is the number of its orders.
const (
	insertAccount = "INSERT INTO lab_accounts (remaining, name) VALUES (?, ?)"
	selectAccount = "SELECT balance, remaining, version FROM lab_accounts WHERE name = ?"
	selectVoucher = "SELECT (SELECT COUNT(*) FROM orders WHERE voucher_id = v.id), remaining, 0 FROM vouchers v WHERE id = ?"
	updateAccount = "UPDATE lab_accounts SET balance = ?, remaining = ? WHERE name = ?"
	updateVersion = "UPDATE lab_accounts SET balance = ?, remaining = ? WHERE version = ? AND name = ?"
	addAndTake    = "UPDATE lab_accounts SET balance = balance + 1, remaining = remaining - ? WHERE name = ?"
	takeUnguarded = "UPDATE lab_accounts SET balance = balance + 1, remaining = remaining - 1, unguarded = 1 WHERE name = ?"
)

type figures struct{ Balance, Remaining, version int64 }

// sell is what follows a read: the account has one more, and the stock one less if there is one.
func (f *figures) sell() (sold int64) {
	f.Balance++
	sold = min(f.Remaining, 1)
	f.Remaining -= sold
	return sold
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

// sale is what follows a read. It tells how it ended; "" begins anew.
type sale = func(u unit, found figures) (sold int64, end point)

// work reads, thinks and writes until the write is done, in a transaction if the way is in one.
func (w way) work(u unit) (told answer) {
	if w.voucher != "" {
		return u.order(w.voucher)
	}
	if w.transacted {
		u.tx = got(u.db.SQL().BeginTx(u.ctx, nil))("begin a transaction")
		defer func() { _ = u.tx.Rollback() }() // nothing after the commit
	}
	for told.End == "" {
		found := u.look(selectAccount)
		u.stand(pointRead)
		told.Sold, told.End = w.sell(u, found)
	}
	if w.transacted {
		must("commit", u.tx.Commit())
	}
	return told
}

// sell writes what it worked out, unless the holder was told that its lock is lost. Only the lock protects it.
func sell(u unit, found figures) (sold int64, end point) {
	if u.held.ctx.Err() != nil && u.ctx.Err() == nil {
		stop(errRefused)
	}
	sold = found.sell()
	u.change(updateAccount, found.Balance, found.Remaining)
	u.stand(pointWritten)
	return sold, pointDone
}

// sellAfterLock locks the row with SELECT … FOR UPDATE behind its reading, whose figures it uses.
func sellAfterLock(u unit, found figures) (sold int64, end point) {
	u.look(selectAccount + " FOR UPDATE")
	return sell(u, found)
}

// sellInTransaction gives the lock back inside the transaction.
func sellInTransaction(u unit, found figures) (sold int64, end point) {
	sold = found.sell()
	u.change(updateAccount, found.Balance, found.Remaining)
	u.held.unlock()
	u.stand(pointFreed)
	return sold, pointDone
}

// sellUnguarded looks whether there is a unit, and takes one.
func sellUnguarded(u unit, found figures) (sold int64, end point) {
	if found.Remaining > 0 && u.change(takeUnguarded) == 1 {
		return 1, pointDone
	}
	return 0, pointSoldOut
}

// sellBySameVersion writes if the version is the one it read, else begins anew.
func sellBySameVersion(u unit, found figures) (sold int64, end point) {
	sold = found.sell()
	rows := u.change(updateVersion, found.Balance, found.Remaining, found.version)
	return sold, map[bool]point{true: pointDone}[rows == 1]
}

// sellUnderConstraint decides by a stock that may have changed since it was read; the database refuses the sale then.
func sellUnderConstraint(u unit, found figures) (sold int64, end point) {
	const mariaDB, mySQL = 4025, 3819 // numbers of the error of a violated CHECK
	sold = found.sell()
	err := try(func() { u.change(addAndTake, sold) })
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && (e.Number == mariaDB || e.Number == mySQL) {
		sold, err = 0, try(func() { u.change(addAndTake, 0) })
	}
	stop(err)
	return sold, pointDone
}

const saleWindow = time.Hour

// fill opens an account with a stock.
func (s strategy) fill(u unit, stock int64) {
	if s.voucher == "" {
		u.change(insertAccount, stock)
		return
	}
	now := time.Now()
	voucher := model.VoucherFields{
		Title: "lab", Price: 1, Stock: stock, BeginAt: now.Add(-saleWindow), EndAt: now.Add(saleWindow),
	}
	_, err := repository.NewVouchers(u.db, "CNY").Create(u.ctx, u.Name, voucher, "", model.Idempotency{})
	must("make a voucher", err)
}

// order sells a unit of a voucher as the product does.
func (u unit) order(how model.StockStrategy) answer {
	options := repository.OrderOptions{Strategy: how, PaymentWindow: saleWindow}
	orders := got(repository.NewOrders(u.db, options))("prepare the orders")
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

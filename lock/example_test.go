package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"seckill/lock"
)

func exampleLocks() (locks *lock.Client, stop func()) {
	locks = lock.New(lock.NewMemoryStore())
	return locks, func() { _ = locks.Close(context.Background()) }
}

func Example() {
	ctx := context.Background()
	server := miniredis.NewMiniRedis() // stands for a Redis
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer client.Close()

	locks := lock.New(lock.NewRedisStore(client)) // once per process
	defer func() { _ = locks.Close(ctx) }()

	lease, err := locks.Mutex("lock:order:42").Lock(ctx, lock.Wait(time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := lease.Unlock(); errors.Is(err, lock.ErrLost) {
			fmt.Println("somebody else may have been at work too")
		}
	}()

	for step := range 3 {
		if lease.Context().Err() != nil {
			fmt.Println("stop before step", step, "because of", context.Cause(lease.Context()))
			return
		}
		fmt.Println("step", step, "under", lease.Name())
		if step == 1 { // an operator takes the lock away, and the holder notices
			_, _ = locks.ForceUnlock(ctx, lease.Name())
			_ = lease.Extend(ctx, time.Minute)
		}
	}
	// Output:
	// step 0 under lock:order:42
	// step 1 under lock:order:42
	// stop before step 2 because of lock: lost: found gone, asked to extend it
	// somebody else may have been at work too
}

// Do gives back whatever happens. What it calls may lock the same name again: the owner is in the context.
func ExampleClient_Do() {
	locks, stop := exampleLocks()
	defer stop()
	transfer := func(ctx context.Context) error {
		return locks.Do(ctx, "account:1", func(context.Context) error { return errors.New("no funds") })
	}
	fmt.Println("transfer:", locks.Do(context.Background(), "account:1", transfer))
	holder, _, _ := locks.Holder(context.Background(), "account:1")
	fmt.Printf("held by %q\n", holder)
	// Output:
	// transfer: no funds
	// held by ""
}

// One process leads. When it returns, or is gone, another does.
func ExampleClient_Campaign() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	locks, end := exampleLocks()
	defer end()
	err := locks.Campaign(ctx, "nightly", func(ctx context.Context) error {
		holder, left, _ := locks.Holder(ctx, "nightly")
		fmt.Println("leads:", holder != "", left > 29*time.Second)
		_, err := locks.Mutex("nightly").TryLock(lock.Detach(ctx)) // anybody else
		fmt.Println("another:", errors.Is(err, lock.ErrHeld))
		return nil
	})
	fmt.Println("it is done:", err)
	// Output:
	// leads: true true
	// another: true
	// it is done: <nil>
}

// A semaphore of n is n locks, of which one is enough.
func ExampleMutex_TryLock_semaphore() {
	locks, stop := exampleLocks()
	defer stop()
	enter := func() (lease *lock.Lease, err error) {
		for place := range 2 {
			lease, err = locks.Mutex(fmt.Sprint("printer:", place)).TryLock(context.Background())
			if !errors.Is(err, lock.ErrHeld) {
				break
			}
		}
		return lease, err
	}
	for range 3 {
		_, err := enter()
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// lock printer:1: lock: held by somebody else
}

func ExampleMutex_TryLock() {
	ctx := context.Background()
	locks, stop := exampleLocks()
	defer stop()
	job := locks.Mutex("job:nightly")

	lease, err := job.TryLock(ctx)
	fmt.Println("first:", err)
	_, err = job.TryLock(ctx)
	fmt.Println("second:", errors.Is(err, lock.ErrHeld))
	fmt.Println("unlock:", lease.Unlock())
	// Output:
	// first: <nil>
	// second: true
	// unlock: <nil>
}

// A lease of fixed length ends by itself; its context says so before anybody else can have the lock.
func ExampleLeaseTime() {
	ctx := context.Background()
	locks, stop := exampleLocks()
	defer stop()

	lease, err := locks.Mutex("short").Lock(ctx, lock.LeaseTime(3*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	<-lease.Context().Done()
	fmt.Println(errors.Is(context.Cause(lease.Context()), lock.ErrLost))
	fmt.Println(errors.Is(lease.Unlock(), lock.ErrLost))
	// Output:
	// true
	// true
}

// The owner travels in the context of the lease.
func ExampleDetach() {
	ctx := context.Background()
	locks, stop := exampleLocks()
	defer stop()
	m := locks.Mutex("report")

	outer, err := m.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	inner, err := m.TryLock(outer.Context()) // the same owner: re-enters
	fmt.Println("inner:", err)
	_, err = m.TryLock(lock.Detach(outer.Context())) // nobody's: competes
	fmt.Println("detached:", errors.Is(err, lock.ErrHeld))
	_ = inner.Unlock()
	_ = outer.Unlock()
	// Output:
	// inner: <nil>
	// detached: true
}

// A majority of independent instances survives the loss of one of three, and a replica that was promoted too early.
func ExampleMajority() {
	ctx := context.Background()
	var parts []lock.Locker
	for range 3 {
		locks, stop := exampleLocks() // each on an instance of its own
		defer stop()
		parts = append(parts, locks.Mutex("lock:order:42"))
	}
	lease, err := lock.Majority(parts...).Lock(ctx, lock.Wait(time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Name())
	fmt.Println(lease.Unlock())
	// Output:
	// majority(lock:order:42, lock:order:42, lock:order:42)
	// <nil>
}

// All locks several things at once, in no order, without deadlock.
func ExampleAll() {
	ctx := context.Background()
	locks, stop := exampleLocks()
	defer stop()

	lease, err := lock.All(locks.Mutex("account:1"), locks.Mutex("account:2")).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Unlock())
	// Output: <nil>
}

// The statement that writes compares the token with the greatest one in the row. (With go-sql-driver for MySQL set
// clientFoundRows=true, or read the token FOR UPDATE first.)
func ExampleLease_Token() {
	ctx := context.Background()
	locks, stop := exampleLocks()
	defer stop()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	if _, err = db.ExecContext(ctx, `CREATE TABLE accounts (id INT PRIMARY KEY, balance INT, token BIGINT);
		INSERT INTO accounts VALUES (1, 100, 0)`); err != nil {
		fmt.Println(err)
		return
	}
	write := func(balance int, token int64) string {
		result, err := db.ExecContext(ctx,
			"UPDATE accounts SET balance = ?, token = ? WHERE id = 1 AND token <= ?", balance, token, token)
		if err != nil {
			return err.Error()
		}
		if n, _ := result.RowsAffected(); n == 0 {
			return "refused: a later holder has written"
		}
		return "written"
	}

	first, err := locks.Mutex("account:1").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	// The first holder stalls; an operator frees its lock, another one takes it.
	_, _ = locks.ForceUnlock(ctx, "account:1")
	second, err := locks.Mutex("account:1").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("second:", write(200, second.Token()))
	fmt.Println("first:", write(150, first.Token()))
	_ = second.Unlock()
	fmt.Println("first was told:", errors.Is(first.Unlock(), lock.ErrLost))
	// Output:
	// second: written
	// first: refused: a later holder has written
	// first was told: true
}

func ExampleNewMySQLStore() {
	ctx := context.Background()
	// The driver is the program's: import _ "github.com/go-sql-driver/mysql"
	db, err := sql.Open("mysql", "user:password@tcp(127.0.0.1:3306)/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	store := lock.NewMySQLStore(db)
	if err := store.EnsureTable(ctx); err != nil { // or lock.MySQLTable in a migration
		fmt.Println(err)
		return
	}
	locks := lock.New(store)
	defer func() { _ = locks.Close(ctx) }()
	lease, err := locks.Mutex("order:42").Lock(ctx, lock.Wait(time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lease.Unlock() }()
}

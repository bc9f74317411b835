// Command lock-in-your-service runs in as many processes as you like: one of them leads, and books at each Enter.
package main

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

const account = "account:1"

func main() {
	options, err := redis.ParseURL(os.Getenv("SECKILL_REDIS_URL"))
	db, bad := sql.Open("mysql", os.Getenv("SECKILL_DATABASE_DSN"))
	if err = cmp.Or(err, bad); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	locks := lock.New(lock.NewRedisStore(redis.NewClient(options)), lock.WatchdogLease(5*time.Second))
	// Of a process that is gone another one takes over within the lease; of one that ends, at once.
	err = errors.Join(locks.Campaign(ctx, "books", func(ctx context.Context) error {
		fmt.Println("leads")
		for ctx.Err() == nil {
			err := locks.Do(ctx, account, func(ctx context.Context) error { return book(ctx, locks, db) })
			if errors.Is(err, os.ErrClosed) {
				return nil
			}
			fmt.Println("done:", err)
		}
		return context.Cause(ctx)
	}), locks.Close(ctx))
	if err != nil {
		log.Fatal(err)
	}
}

// book is work under the lock of the account. Other programs take it too: a console, Redisson.
func book(ctx context.Context, locks *lock.Client, db *sql.DB) error {
	lease, err := locks.Mutex(account).Lock(ctx) // the same owner once more, to learn the token
	if err != nil {
		return err
	}
	defer func() { _ = lease.Unlock() }() //nolint:contextcheck // an unlock bounds itself; Do tells of a lost lock
	fmt.Println("holds", account)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return os.ErrClosed
	}
	// The token decides, whatever this process believes. A statement that was cut short would leave it guessing.
	result, err := db.ExecContext(context.WithoutCancel(ctx),
		"UPDATE accounts SET balance = balance + 1, token = ? WHERE id = 1 AND token <= ?", lease.Token(), lease.Token())
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); rows == 0 {
		return cmp.Or(err, errors.New("refused: a later holder has written"))
	}
	return nil
}

package lock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/lock"
)

const (
	roleVariable  = "LOCK_TEST_ROLE"
	redisVariable = "LOCK_TEST_REDIS"
	dsnVariable   = "LOCK_TEST_DSN"
)

var errFenced = errors.New("a later holder has written already")

// writeFenced is the worked example of a fencing token: the row remembers the
// greatest token that has written it, and the comparison and the write are one
// transaction, the row being locked from the first on.
func writeFenced(ctx context.Context, db *sql.DB, account, balance int, token int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var seen int64
	if err := tx.QueryRowContext(ctx, "SELECT token FROM accounts WHERE id = ? FOR UPDATE", account).Scan(&seen); err != nil {
		return err
	}
	if token < seen {
		return errFenced
	}
	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = ?, token = ? WHERE id = ?", balance, token, account); err != nil {
		return err
	}
	return tx.Commit()
}

// holder is the child process: it takes the lock, and later writes with the
// token it got.
func holder() int {
	err := func() error {
		ctx := context.Background()
		opt, err := redis.ParseURL(os.Getenv(redisVariable))
		if err != nil {
			return err
		}
		client := redis.NewClient(opt)
		defer func() { _ = client.Close() }()
		db, err := sql.Open("mysql", os.Getenv(dsnVariable))
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		locks := lock.New(lock.NewRedisStore(client), lock.WatchdogLease(500*time.Millisecond))
		defer func() { _ = locks.Close(ctx) }()
		lease, err := locks.Mutex("account:1").Lock(ctx, lock.Wait(5*time.Second))
		if err != nil {
			return err
		}
		fmt.Println("locked", lease.Token()) //nolint:forbidigo // to the parent
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
		// As a program would that does not look at lease.Context() in time.
		err = writeFenced(ctx, db, 1, 666, lease.Token())
		fmt.Println("wrote", errors.Is(err, errFenced))                  //nolint:forbidigo // to the parent
		fmt.Println("unlocked", errors.Is(lease.Unlock(), lock.ErrLost)) //nolint:forbidigo // to the parent
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestPausedHolderIsFenced: a process that holds the lock is stopped for longer
// than its lease; another one takes the lock and writes; the first one wakes up
// in the middle of its work and writes too. Its token refuses it.
func TestPausedHolderIsFenced(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.Redis(t).URL())
	dsn := testserver.Schema(t)
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		"CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL, token BIGINT NOT NULL)",
		"INSERT INTO accounts VALUES (1, 100, 0)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}

	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"=holder", redisVariable+"=redis://"+client.Options().Addr, dsnVariable+"="+dsn)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	says := bufio.NewScanner(out)
	expect := func(word string) string {
		t.Helper()
		if !says.Scan() {
			t.Fatalf("the child ended, %q was expected", word)
		}
		rest, ok := strings.CutPrefix(says.Text(), word+" ")
		if !ok {
			t.Fatalf("the child said %q, %q was expected", says.Text(), word)
		}
		return rest
	}
	oldToken := expect("locked")
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	lease := mustLock(t, t.Context(), locksOn(t, client).Mutex("account:1"))
	if fmt.Sprint(lease.Token()) == oldToken {
		t.Error("both have the same token")
	}
	if err := writeFenced(lease.Context(), db, 1, 200, lease.Token()); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if refused := expect("wrote"); refused != "true" {
		t.Error("the stale write was not refused")
	}
	if lost := expect("unlocked"); lost != "true" {
		t.Error("the stale holder was not told of its loss")
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	var balance int
	if err := db.QueryRowContext(t.Context(), "SELECT balance FROM accounts WHERE id = 1").Scan(&balance); err != nil || balance != 200 {
		t.Errorf("balance %d, %v", balance, err)
	}
	mustUnlock(t, lease)
}

package lock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

const (
	roleVariable  = "LOCK_TEST_ROLE"
	redisVariable = "LOCK_TEST_REDIS"
	dsnVariable   = "LOCK_TEST_DSN"
	nameVariable  = "LOCK_TEST_NAME"
)

var errFenced = errors.New("a later holder has written already")

// writeFenced is the worked example of a fencing token: the row remembers the greatest token that has written it, and
// the comparison and the write are one transaction, the row being locked from the first on.
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

// holder is the child process: it takes the lock, and later writes with the token it got.
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
		locks := lock.New(redisStore(client), lock.WatchdogLease(calm), lock.UnlockTimeout(check.Deadline))
		defer func() { _ = locks.Close(ctx) }()
		lease, err := take(ctx, locks.Mutex(os.Getenv(nameVariable)))
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

// TestPausedHolderIsFenced: a process that holds the lock is stopped, and its lease runs out (at once, on the server);
// another one takes the lock and writes; the first one wakes up in the middle of its work and writes too. Its token
// refuses it.
func TestPausedHolderIsFenced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dsn := testserver.Schema(t)
	db := check.Value(sql.Open("mysql", dsn))(t)
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		"CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL, token BIGINT NOT NULL)",
		"INSERT INTO accounts VALUES (1, 100, 0)",
	} {
		check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement)))
	}

	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"=holder", redisVariable+"=redis://"+b.direct.Options().Addr,
		dsnVariable+"="+dsn, nameVariable+"="+b.name)
	child.Stderr = os.Stderr
	in := check.Value(child.StdinPipe())(t)
	out := check.Value(child.StdoutPipe())(t)
	check.Must(t, child.Start())
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
	check.Must(t, child.Process.Signal(syscall.SIGSTOP))
	check.Equal(t, "its lease runs out", b.direct.PExpire(t.Context(), b.name, time.Millisecond).Val(), true)

	lease := mustLock(t, t.Context(), locksOn(t, b.direct).Mutex(b.name))
	if fmt.Sprint(lease.Token()) == oldToken {
		t.Error("both have the same token")
	}
	check.Must(t, writeFenced(lease.Context(), db, 1, 200, lease.Token()))
	check.Must(t, child.Process.Signal(syscall.SIGCONT))
	check.Must(t, check.ErrorOf(in.Write([]byte("go\n"))))
	check.Equal(t, "the stale write was refused", expect("wrote"), "true")
	check.Equal(t, "the stale holder was told of its loss", expect("unlocked"), "true")
	check.Must(t, child.Wait())
	var balance int
	check.Must(t, db.QueryRowContext(t.Context(), "SELECT balance FROM accounts WHERE id = 1").Scan(&balance))
	check.Equal(t, "balance", balance, 200)
	mustUnlock(t, lease)
}

// TestAnotherModuleImportsIt as README.md says: no go get reaches a module whose path has no dot, so its directory is
// named, by a replace or in a workspace.
func TestAnotherModuleImportsIt(t *testing.T) {
	t.Parallel()
	const program = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"seckill/lock"
)

func main() {
	ctx := context.Background()
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		panic(err)
	}
	locks := lock.New(lock.NewRedisStore(redis.NewClient(options)))
	lease, err := locks.Mutex(os.Args[2]).Lock(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Print("held: ", lease.Context().Err() == nil, ", given back: ", lease.Unlock() == nil, ", closed: ", locks.Close(ctx) == nil)
}
`
	module := check.Value(filepath.Abs(".."))(t)
	guide := string(check.Value(os.ReadFile("README.md"))(t))
	for way, commands := range map[string]string{
		"a replace":   "go mod edit -replace=seckill=../seckill && go get seckill/lock",
		"a workspace": "go work init . ../seckill",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(guide, "\n"+commands) {
				t.Errorf("README.md does not say %q", commands)
			}
			dir := t.TempDir()
			check.Must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
			run := func(script string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "bash", "-euc", script, "bash", testserver.SharedRedis(t), nameOf(t))
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=", "GONOSUMDB=*") // go.sum of this module vouches for them
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", script, err, out)
				}
				return string(out)
			}
			run("go mod init example.com/shop && " + strings.ReplaceAll(commands, "../seckill", module))
			run("go build -o shop .")
			check.Equal(t, "what the program says", run(`./shop "$1" "$2"`), "held: true, given back: true, closed: true")
		})
	}
}

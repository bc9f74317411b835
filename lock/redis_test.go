package lock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

// Keys and channel are Redisson's; siblings unlock in any order (trap 14). Guard: withOwner in Mutex.lock.
func TestRedisLayout(t *testing.T) {
	t.Parallel()
	for kind, client := range map[string]*redis.Client{
		"redis":     dial(t, testserver.SharedRedis(t)),
		"miniredis": dial(t, "redis://"+miniredis.RunT(t).Addr()),
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			ctx, name := t.Context(), nameOf(t)
			m := locksOn(t, client, onlyMessages()...).Mutex(name)
			outer := mustLock(t, ctx, m)
			inner := mustLock(t, outer.Context(), m)
			check.Equal(t, "it has a token", outer.Token() != 0, true)
			check.Volley(8, func(int) { mustUnlock(t, mustLock(t, inner.Context(), m)) })
			hash := client.HGetAll(ctx, name).Val()
			check.Equal(t, "fields", len(hash), 1)
			for k, v := range hash {
				check.That(t, v == "2" && len(k) >= 38, "field %s = %s", k, v)
			}
			mustUnlock(t, outer)
			check.Equal(t, "counts after one unlock of two", fmt.Sprint(client.HVals(ctx, name).Val()), "[1]")
			ttl := client.PTTL(ctx, name).Val()
			check.That(t, ttl >= calm/2 && ttl <= calm, "ttl %s of a lease of %s", ttl, calm)

			waiter := begin(ctx, m)
			check.Eventually(t, "a subscription of Redisson's channel",
				func() bool { return subscribed(t, client, name) == 1 })
			mustUnlock(t, inner)
			next := got(t, "the waiter", waiter)
			wantLater(t, next.Token(), outer.Token())
			mustUnlock(t, next)
			noSubscription(t, client, name)
			onlyPassing(t, client, name)
		})
	}
}

// Each call gets the reason, also those that share a pipeline.
func TestARefusedLoginHoldsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	locks := lock.New(redisStore(dial(t, "redis://nobody:wrong@"+b.direct.Options().Addr+"/0")))
	defer func() {
		ended, end := context.WithCancel(t.Context())
		end()
		_ = locks.Close(ended) // what it undoes is refused too
	}()
	check.Volley(20, func(i int) {
		lease, err := locks.Mutex(fmt.Sprint(b.name, i)).TryLock(t.Context())
		check.That(t, lease == nil && strings.Contains(fmt.Sprint(err), "WRONGPASS"), "lease %v, error %v", lease, err)
	})
	check.Equal(t, "keys", len(b.direct.Keys(t.Context(), "*"+b.name+"*").Val()), 0)
}

//nolint:tparallel // one server, one user after the other
func TestRefusals(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, "--appendonly", "no")
	direct := dial(t, server.URL())
	order := func(t *testing.T, args ...any) {
		t.Helper()
		check.Must(t, direct.Do(t.Context(), args...).Err())
	}
	user := func(t *testing.T, name string, may ...any) *redis.Client {
		t.Helper()
		order(t, append([]any{"acl", "setuser", name, "on", "nopass", "&*"}, may...)...)
		opt := patient(t, server.URL())
		opt.Username, opt.Password, opt.ContextTimeoutEnabled = name, "any", true
		return connect(t, opt)
	}

	// The user may not touch one lock's key: the others are renewed. Guard: errs, of each request, in Renew.
	t.Run("one renewal", func(t *testing.T) {
		s := newAsked(t, redisStore(user(t, "renewing", "~good*", "+@all")))
		all := []lock.Request{request("bad", 1)}
		for i := range 5 {
			all = append(all, request(fmt.Sprint("good", i), 1))
		}
		admin := newAsked(t, redisStore(direct))
		for _, r := range all {
			admin.acquire("taken", r, lock.StateHeld)
		}
		for i, err := range s.Renew(t.Context(), all) {
			check.Is(t, all[i].Name, err, map[bool]error{true: lock.ErrRefused}[i == 0])
		}
	})
	// The user may not subscribe: a waiter asks at intervals, without an error (trap 10). Guard: q.messages in look.
	t.Run("to subscribe", func(t *testing.T) {
		locks := locksOn(t, user(t, "deaf", "~*", "+@all", "-subscribe"), lock.ProbeEvery(calm))
		held := mustLock(t, t.Context(), locksOn(t, direct).Mutex("k"))
		waiter := begin(t.Context(), locks.Mutex("k"))
		check.Eventually(t, "it waits", func() bool { return lock.Waiting(locks, "k") == 1 })
		mustUnlock(t, held)
		mustUnlock(t, got(t, "the waiter", waiter))
	})
	// The user may free a lock, and not hand it over: Unlock frees it for the waiter. Guard: Release in Client.free.
	handsOver := func(t *testing.T, refuse ...any) (waiter <-chan attempt) {
		t.Helper()
		name := nameOf(t)
		locks := locksOn(t, user(t, "app", "~*", "+@all"))
		held := mustLock(t, t.Context(), locks.Mutex(name))
		waiter = begin(t.Context(), locks.Mutex(name))
		check.Eventually(t, "it waits", func() bool { return lock.Waiting(locks, name) == 1 })
		check.Eventually(t, "it listens", func() bool { return subscribed(t, direct, name) == 1 })
		order(t, refuse...)
		mustUnlock(t, held)
		return waiter
	}
	t.Run("PUBSUB", func(t *testing.T) {
		mustUnlock(t, got(t, "the waiter", handsOver(t, "acl", "setuser", "app", "-pubsub")))
	})
	t.Run("memory", func(t *testing.T) {
		// Who waits is refused too, by an answer that ends its Lock.
		a := check.Receive(t, "the waiter", handsOver(t, "config", "set", "maxmemory", "1"))
		check.That(t, a.err != nil, "the lock was taken without memory, so this shows nothing")
	})
}

// gate notes how many keys each script call names. It can keep one script call back until it is opened.
type gate struct {
	shut atomic.Bool
	open chan struct{}

	mu   sync.Mutex
	keys []int
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			g.pass(cmd)
		}
		return next(ctx, cmds)
	}
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.pass(cmd)
		return next(ctx, cmd)
	}
}

func (g *gate) pass(cmd redis.Cmder) {
	if cmd.Name() != "evalsha" {
		return
	}
	keys, _ := cmd.Args()[2].(int)
	g.mu.Lock()
	g.keys = append(g.keys, keys)
	g.mu.Unlock()
	if g.shut.CompareAndSwap(true, false) {
		<-g.open
	}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.keys)
}

// together gathers calls behind one that is kept back, and returns how many keys each request named.
func (g *gate) together(t *testing.T, store lock.Store, count int, do func(i int)) []int {
	t.Helper()
	g.mu.Lock()
	g.open, g.keys = make(chan struct{}), nil
	g.mu.Unlock()
	g.shut.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = store.ForceRelease(t.Context(), nameOf(t)) })
	check.Eventually(t, "one is kept back", func() bool { return !g.shut.Load() })
	for i := range count {
		wg.Go(func() { do(i) })
	}
	// Unless the one that is kept back has been so for too long, and no longer holds the others up.
	check.Eventually(t, "the others wait, or went",
		func() bool { return lock.Pending(store) == count || g.count() > 1 })
	close(g.open)
	wg.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.keys[1:]
}

// Redis refuses one of ten locks in a script call: the others go on. Guards: requests; the last case of request.again.
func TestSharedScriptCall(t *testing.T) {
	t.Parallel()
	for kind, opts := range map[string][]lock.RedisOption{"tokens": nil, "without tokens": {lock.WithoutTokens()}} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			client := plain(t, "redis://"+b.direct.Options().Addr)
			g := &gate{}
			client.AddHook(g)
			store := redisStore(client, append(opts, lock.Pipelines(1))...)
			t.Cleanup(func() { _ = store.Close() })
			const count, bad = 10, 3
			var all []lock.Request
			for i := range count {
				all = append(all, request(fmt.Sprint(b.name, i), i))
			}
			want := func(what string, i int, did bool, err, refused error) {
				good := err == nil && did
				if i == bad {
					good = errors.Is(err, refused)
				}
				check.That(t, good, "%s %d: %v, %v", what, i, did, err)
			}
			// A machine may be too slow to gather them. They may be repeated.
			shared := func(what string, do func(i int)) {
				check.Eventually(t, what+" in one request, and then, as one was refused, each by itself", func() bool {
					keys := g.together(t, store, count, do)
					return len(keys) == 1+count && keys[0] == count*keys[1]
				})
			}
			check.Must(t, b.direct.Set(t.Context(), all[bad].Name, "of another type", calm).Err())
			shared("acquired", func(i int) {
				grant, err := store.Acquire(t.Context(), all[i])
				want("acquire", i, grant.State == lock.StateHeld, err, lock.ErrRefused)
				check.Equal(t, "it has a token", grant.Token != 0, i != bad && len(opts) == 0)
			})
			for i, err := range store.Renew(t.Context(), all) {
				want("renew", i, true, err, lock.ErrLost)
			}
			shared("released", func(i int) {
				r := all[i]
				r.Holds = 0
				was, err := store.Release(t.Context(), r)
				want("release", i, was, err, lock.ErrRefused)
			})
			for i, r := range all {
				check.Equal(t, "keys that are left", b.direct.Exists(t.Context(), r.Name).Val() == 1, i == bad)
			}
		})
	}
}

// deaf is a Redis in a bubble that refuses everything that is said to it. It notes when it was asked to subscribe.
type deaf struct {
	*check.Network

	talks sync.WaitGroup
	mu    sync.Mutex
	asked []time.Time
}

func (d *deaf) serve() {
	for {
		conn, err := d.Accept()
		if err != nil {
			return
		}
		d.talks.Go(func() { d.talk(conn) })
	}
}

func (d *deaf) talk(conn net.Conn) {
	defer conn.Close()
	for said := make([]byte, 1024); ; { // a command at a time, since the client waits for each answer
		n, err := conn.Read(said)
		if err != nil {
			return
		}
		if strings.Contains(strings.ToLower(string(said[:n])), "\r\nsubscribe\r\n") {
			d.mu.Lock()
			d.asked = append(d.asked, time.Now())
			d.mu.Unlock()
		}
		if _, err := io.WriteString(conn, "-NOPERM this user may not run it\r\n"); err != nil {
			return
		}
	}
}

// The pause before the next connection doubles, up to a second. Guard: heard in subscriptions.receive.
func TestRefusedSubscriptionIsTriedLessAndLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{Network: check.NewNetwork()}
		d.talks.Go(d.serve)
		// With a name instead of a number the client would ask the resolver, outside the bubble.
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", Dialer: d.Dial, Protocol: 2,
			DisableIdentity: true,
		})
		store := lock.NewRedisStore(client)
		watch := store.Watch(t.Context(), "k", func() {})
		time.Sleep(5 * time.Second)
		watch.Stop()
		check.Must(t, store.Close())
		check.Must(t, client.Close())
		check.Must(t, d.Close())
		d.talks.Wait()
		var pauses []time.Duration
		for i := range d.asked[1:] {
			pauses = append(pauses, d.asked[i+1].Sub(d.asked[i]))
		}
		check.Equal(t, "pauses", fmt.Sprint(pauses), "[20ms 40ms 80ms 160ms 320ms 640ms 1s 1s 1s]")
	})
}

const (
	roleVariable  = "LOCK_TEST_ROLE"
	redisVariable = "LOCK_TEST_REDIS"
	dsnVariable   = "LOCK_TEST_DSN"
	nameVariable  = "LOCK_TEST_NAME"
)

var errFenced = errors.New("a later holder has written already")

// writeFenced is the example of a fencing token: one transaction compares it with the row's, locks the row and writes.
func writeFenced(ctx context.Context, db *sql.DB, account, balance int, token int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var seen int64
	if err := tx.QueryRowContext(ctx, "SELECT token FROM accounts WHERE id = ? FOR UPDATE",
		account).Scan(&seen); err != nil {
		return err
	}
	if token < seen {
		return errFenced
	}
	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = ?, token = ? WHERE id = ?", balance, token,
		account); err != nil {
		return err
	}
	return tx.Commit()
}

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

// A paused holder loses its lock to another one, which writes. It wakes up and writes too: its token refuses it.
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

// No go get reaches a module whose path has no dot: README.md names its directory, by a replace or in a workspace.
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
	options, _ := redis.ParseURL(os.Args[1])
	locks := lock.New(lock.NewRedisStore(redis.NewClient(options)))
	lease, _ := locks.Mutex(os.Args[2]).Lock(context.Background())
	fmt.Print("held: ", lease.Context().Err() == nil, ", given back: ", lease.Unlock() == nil, ", closed: ", locks.Close(context.Background()) == nil)
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
				cmd := exec.CommandContext(t.Context(), "bash", "-euc", script, "bash", testserver.SharedRedis(t),
					nameOf(t))
				cmd.Dir = dir
				// The go.sum of this module vouches for the sources.
				cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=", "GONOSUMDB=*")
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", script, err, out)
				}
				return string(out)
			}
			run("go mod init example.com/shop && " + strings.ReplaceAll(commands, "../seckill", module))
			run("go build -o shop .")
			check.Equal(t, "what it has of this module", run("go list -deps . | grep ^seckill/"), "seckill/lock\n")
			check.Equal(t, "what the program says", run(`./shop "$1" "$2"`),
				"held: true, given back: true, closed: true")
		})
	}
}

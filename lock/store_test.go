package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/lock"
)

type kind struct {
	name   string
	open   func() lock.Store
	expire func(t *testing.T, name string) // the lease is over, by the clock of the store
	remove func(t *testing.T, name string) // nothing is left of the lock, and nobody is told
	// nil: the store's clock cannot be set. Else a lease lasts for days, as after that clock was ahead.
	stretch func(t *testing.T, name string)
	// forgets: it sits in this process, where no answer is lost and no request is late.
	forgets bool
}

func kinds(t *testing.T) []kind {
	t.Helper()
	inRedis := func(name string, client *redis.Client, open func() lock.Store) kind {
		lasts := func(d time.Duration) func(t *testing.T, name string) {
			return func(t *testing.T, name string) {
				t.Helper()
				check.Equal(t, "the key was there", check.Value(client.PExpire(t.Context(), name, d).Result())(t), true)
				if d < time.Second {
					check.Eventually(t, "the key expires",
						func() bool { return client.Exists(t.Context(), name).Val() == 0 })
				}
			}
		}
		remove := func(t *testing.T, name string) {
			t.Helper()
			check.Equal(t, "the key was there", check.Value(client.Del(t.Context(), name).Result())(t), 1)
		}
		return kind{name: name, open: open, expire: lasts(time.Millisecond), remove: remove, stretch: lasts(stretched)}
	}
	shared := dial(t, testserver.SharedRedis(t))
	mini := miniredis.RunT(t)
	mini.ClockTTL(true)
	embedded := dial(t, "redis://"+mini.Addr())
	memory := lock.NewMemoryStore() // one for all the "processes", as far as these go there
	force := func(t *testing.T, name string) {
		t.Helper()
		check.Equal(t, "the lock was there", check.Value(memory.ForceRelease(t.Context(), name))(t), true)
	}
	db := openDB(t)
	check.Must(t, table(t, db).Close())
	inTable := func(statement string) func(*testing.T, string) {
		return func(t *testing.T, name string) {
			t.Helper()
			check.Must(t, check.ErrorOf(db.ExecContext(t.Context(), statement, name)))
		}
	}
	return []kind{
		inRedis("redis", shared, func() lock.Store { return redisStore(shared) }),
		inRedis("setnx", shared, func() lock.Store {
			return lock.NewSetNXStore(shared,
				lock.CallTimeout(check.Deadline))
		}),
		inRedis("miniredis", embedded, func() lock.Store { return redisStore(embedded) }),
		{name: "memory", open: func() lock.Store { return memory }, expire: force, remove: force, forgets: true},
		{
			name:    "mysql",
			open:    func() lock.Store { return lock.NewMySQLStore(db, lock.StatementTimeout(check.Deadline)) },
			expire:  inTable("UPDATE seckill_locks SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND WHERE name = ?"),
			remove:  inTable("DELETE FROM seckill_locks WHERE name = ?"),
			stretch: inTable("UPDATE seckill_locks SET expires_at = UTC_TIMESTAMP(6) + INTERVAL 1000 HOUR WHERE name = ?"),
		},
	}
}

func TestStores(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, k kind, s *asked){
		"one holder":            storeHolder,
		"leases only grow":      storeLeases,
		"gone behind its back":  storeGone,
		"late copies":           storeLate,
		"tokens are raised":     storeTokens,
		"ended before it began": storeEnded,
		"clocks that jump":      storeJump,
	}
	for _, k := range kinds(t) {
		store := k.open()
		t.Cleanup(func() { _ = store.Close() })
		for what, run := range cases {
			t.Run(k.name+"/"+what, func(t *testing.T) {
				t.Parallel()
				run(t, k, &asked{t, store})
			})
		}
	}
}

func request(name string, holder int) lock.Request {
	return lock.Request{
		Name: name, Holder: fmt.Sprintf("00000000-0000-4000-8000-000000000000:%d", holder), Holds: 1,
		Lease: calm,
	}
}

const stretched = 1000 * time.Hour

// bounded is a holder whose name says that its lease is calm at most.
func bounded(name string) lock.Request {
	r := request(name, 1)
	r.Holder = fmt.Sprintf("00000000-0000-8000-8000-0000%08x:1", calm.Milliseconds())
	return r
}

type asked struct {
	*testing.T
	lock.Store
}

func newAsked(t *testing.T, store lock.Store) *asked {
	t.Helper()
	t.Cleanup(func() { _ = store.Close() })
	return &asked{t, store}
}

func (a *asked) pass(from, to lock.Request) lock.Passed {
	a.Helper()
	return check.Value(a.Store.(lock.Passer).Pass(a.Context(), from, to))(a)
}

func (a *asked) acquire(what string, r lock.Request, want lock.State) lock.Grant {
	a.Helper()
	grant := check.Value(a.Acquire(a.Context(), r))(a)
	check.Equal(a, what+": state", grant.State, want)
	return grant
}

func (a *asked) release(what string, r lock.Request, want bool) {
	a.Helper()
	r.Holds = 0
	check.Equal(a, what, check.Value(a.Release(a.Context(), r))(a), want)
}

// abandon gives up an acquisition. (Whether the lock was there, MySQL does not know, and no caller asks.)
func (a *asked) abandon(r lock.Request) {
	a.Helper()
	r.Holds, r.Abandon = 0, true
	check.Must(a, check.ErrorOf(a.Release(a.Context(), r)))
}

// Guards: hexists holder in release.lua, get ~= holder in setnx_release.lua; the latch there; released in
// sql/release.sql.
func storeHolder(t *testing.T, k kind, s *asked) {
	name := nameOf(t)
	mine, other := request(name, 1), request(name, 2)
	first := s.acquire("a free one", mine, lock.StateHeld)
	left := s.acquire("held by another", other, lock.StateBusy).Remaining
	check.That(t, left <= calm && left >= calm/2, "%s are left of a lease of %s", left, calm)
	again := s.acquire("a repetition", mine, lock.StateHeld)
	check.Equal(t, "its token", again.Token, first.Token)
	inner := other
	inner.Holds = 2
	s.acquire("a re-entry of who is not in", inner, lock.StateLost)
	s.release("released by another", request(name, 3), false)
	s.abandon(request(name, 4))
	s.acquire("held all the same", mine, lock.StateHeld)
	s.release("released", mine, true)
	s.release("released again, after a lost reply", mine, !k.forgets)
	next := s.acquire("free again", other, lock.StateHeld)
	if next.Token <= first.Token {
		t.Errorf("token %d after %d", next.Token, first.Token)
	}
	s.release("released again, when another has it", mine, !k.forgets)
	s.acquire("which keeps it", request(name, 5), lock.StateBusy)
	s.release("and releases it", other, true)
}

// Guards: pttl < lease in the scripts, GREATEST in the statements, extend in MemoryStore; errs of each request.
func storeLeases(t *testing.T, _ kind, s *asked) {
	name := nameOf(t)
	mine, other := request(name, 1), request(name, 2)
	left := func(what string, atLeast time.Duration) {
		t.Helper()
		d := s.acquire(what, other, lock.StateBusy).Remaining
		check.That(t, d >= atLeast, "%s: %s are left, want %s", what, d, atLeast)
	}
	s.acquire("taken", mine, lock.StateHeld)
	inner := mine
	inner.Holds, inner.Lease = 2, time.Minute
	s.acquire("re-entered for less", inner, lock.StateHeld)
	left("after a shorter re-entry", calm/2)
	longer := mine
	longer.Lease = 3 * calm
	for what, r := range map[string]lock.Request{"shorter": inner, "longer": longer} {
		errs := s.Renew(t.Context(), []lock.Request{other, r, request(name+" of nobody", 1)})
		check.Is(t, what+": of another holder", errs[0], lock.ErrLost)
		check.Is(t, what+": its own", errs[1], nil)
		check.Is(t, what+": of nobody", errs[2], lock.ErrLost)
		left(what, calm/2)
	}
	left("renewed for longer", 2*calm)
	shorter := inner
	shorter.Exact = true
	check.Is(t, "shortened", s.Renew(t.Context(), []lock.Request{shorter})[0], nil)
	holder, rest, err := s.Holder(t.Context(), name)
	check.Must(t, err)
	check.Equal(t, "its holder", holder, mine.Holder)
	check.Equal(t, "the lease is shorter and has not ended", rest > 0 && rest <= shorter.Lease, true)
	check.Is(t, "renewed again", s.Renew(t.Context(), []lock.Request{longer})[0], nil)
	check.Equal(t, "one hold given back", check.Value(s.Release(t.Context(), mine))(t), true)
	left("with one hold less", 2*calm)
	s.release("released", mine, true)
	holder, rest, err = s.Holder(t.Context(), name)
	check.Must(t, err)
	check.Equal(t, "nobody's holder", holder+rest.String(), "0s")
}

func storeGone(t *testing.T, k kind, s *asked) {
	for what, end := range map[string]func(*testing.T, string){
		"expired": k.expire, "removed": k.remove, "forced": func(t *testing.T, name string) {
			check.Equal(t, "forced", check.Value(s.ForceRelease(t.Context(), name))(t), true)
			check.Equal(t, "forced again", check.Value(s.ForceRelease(t.Context(), name))(t), false)
		},
	} {
		name := nameOf(t)
		mine, other := request(name, 1), request(name, 2)
		first := s.acquire("taken", mine, lock.StateHeld)
		end(t, name)
		check.Is(t, what+": renewed", s.Renew(t.Context(), []lock.Request{mine})[0], lock.ErrLost)
		inner := mine
		inner.Holds = 2
		s.acquire(what+": re-entered", inner, lock.StateLost)
		s.release(what+": released", mine, false)
		wantLater(t, s.acquire(what+": the next one", other, lock.StateHeld).Token, first.Token)
		s.release(what+": released by who had it", mine, false)
		s.release(what+": released by who has it", other, true)
	}
}

// A copy of a request comes after its holder gave the lock back, or up: nobody is locked out. Guard: exists latch in
// acquire.lua and setnx_acquire.lua, released in acquire.sql.
func storeLate(t *testing.T, k kind, s *asked) {
	if k.forgets {
		return
	}
	for what, abandoned := range map[string]bool{"released": false, "abandoned, not yet arrived": true} {
		name := nameOf(t)
		mine, other := request(name, 1), request(name, 2)
		if abandoned {
			s.abandon(mine)
		} else {
			s.acquire("taken", mine, lock.StateHeld)
			s.release(what, mine, true)
		}
		grant := check.Value(s.Acquire(t.Context(), mine))(t)
		check.That(t, grant.State != lock.StateHeld, "%s: a late copy got the lock", what)
		s.acquire(what+": the next holder", other, lock.StateHeld)
		s.release(what+": the next holder", other, true)
	}
}

func storeTokens(t *testing.T, _ kind, s *asked) {
	name := nameOf(t)
	mine, other := request(name, 1), request(name, 2)
	mine.Token = s.acquire("taken", mine, lock.StateHeld).Token + time.Hour.Microseconds() // ahead of every clock
	wantLater(t, s.acquire("raised", mine, lock.StateHeld).Token, mine.Token-1)
	s.release("released", mine, true)
	wantLater(t, s.acquire("the next holder", other, lock.StateHeld).Token, mine.Token)
	s.release("released", other, true)
}

func storeEnded(t *testing.T, _ kind, s *asked) {
	name := nameOf(t)
	ended, end := context.WithCancel(t.Context())
	end()
	mine := request(name, 1)
	for what, err := range map[string]error{
		"acquired": check.ErrorOf(s.Acquire(ended, mine)), "released": check.ErrorOf(s.Release(ended, mine)),
		"renewed": s.Renew(ended, []lock.Request{mine})[0],
	} {
		check.That(t, err != nil, "%s", what)
	}
	s.abandon(mine)
	s.acquire("it is free", request(name, 2), lock.StateHeld)
	s.release("released", request(name, 2), true)
}

// Whoever sees a lease that its holder's limit forbids cuts it: at a renewal, a re-entry or a request. Without a limit
// it stays. Guards: longest in the scripts, {longest} in the statements.
func storeJump(t *testing.T, k kind, s *asked) {
	if k.stretch == nil {
		return
	}
	left := func(what, name string, atMost time.Duration) {
		t.Helper()
		_, left, err := s.Holder(t.Context(), name)
		check.Must(t, err)
		check.That(t, left <= atMost && left >= calm/2, "%s: %s are left, want %s", what, left, atMost)
	}
	renew := func(r lock.Request) { check.Is(t, "a renewal", s.Renew(t.Context(), []lock.Request{r})[0], nil) }
	for what, see := range map[string]func(mine lock.Request){
		"the holder at a renewal": renew,
		"the holder at a shorter one": func(mine lock.Request) {
			mine.Lease = time.Minute
			renew(mine)
		},
		"the holder at a re-entry": func(mine lock.Request) { s.acquire("re-entered", mine, lock.StateHeld) },
		"another, for less": func(mine lock.Request) {
			other := request(mine.Name, 2)
			other.Lease = time.Minute
			d := s.acquire("busy", other, lock.StateBusy).Remaining
			check.That(t, d <= calm, "the waiter gets %s of a lease of %s", d, calm)
		},
	} {
		mine := bounded(nameOf(t))
		s.acquire("taken", mine, lock.StateHeld)
		k.stretch(t, mine.Name)
		see(mine)
		left(what, mine.Name, calm)
	}
	foreign := request(nameOf(t), 1)
	s.acquire("taken by a foreign holder", foreign, lock.StateHeld)
	k.stretch(t, foreign.Name)
	s.acquire("still busy", bounded(foreign.Name), lock.StateBusy)
	renew(foreign)
	left("a foreign holder's", foreign.Name, stretched)
}

// Only rows unused for long go; the next token is greater. Guards: WHERE in sweep.sql, the clock in acquire.sql.
func TestSweep(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	store := table(t, db)
	locks := newLocks(t, store)
	old := mustLock(t, t.Context(), locks.Mutex("old"))
	mustUnlock(t, old)
	held := mustLock(t, t.Context(), locks.Mutex("held"))
	cycle(t, locks.Mutex("just now"))
	check.Must(t, check.ErrorOf(db.ExecContext(t.Context(),
		"UPDATE seckill_locks SET expires_at = UTC_TIMESTAMP(6) - INTERVAL 2 HOUR WHERE name = 'old'")))
	check.Equal(t, "rows swept", check.Value(lock.Sweep(t.Context(), store, time.Hour))(t), 1)
	var left int
	check.Must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM seckill_locks WHERE name <> 'old'").Scan(&left))
	check.Equal(t, "rows that are left of two", left, 2)
	again := mustLock(t, t.Context(), locks.Mutex("old"))
	wantLater(t, again.Token(), old.Token())
	mustUnlock(t, again)
	mustUnlock(t, held)
}

func keepRow(t *testing.T, db *sql.DB, name string) *sql.Tx {
	t.Helper()
	tx := check.Value(db.BeginTx(t.Context(), nil))(t)
	t.Cleanup(func() { _ = tx.Rollback() })
	check.Must(t, check.ErrorOf(tx.ExecContext(t.Context(), "SELECT 1 FROM seckill_locks WHERE name = ? FOR UPDATE",
		name)))
	return tx
}

// Renewals beside a locked row neither fail nor wait. Guard: errs, of each request, in MySQLStore.Renew.
func TestLockedRowIsOneLocksTrouble(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	s := newAsked(t, table(t, db))
	var all []lock.Request
	for i := range 5 {
		r := request(fmt.Sprint("k", i), i)
		s.acquire("taken", r, lock.StateHeld)
		r.Lease = 3 * calm
		all = append(all, r)
	}
	tx := keepRow(t, db, all[0].Name)
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	done := make(chan []error, 1)
	go func() { done <- s.Renew(ctx, all) }()
	check.Eventually(t, "the others are renewed", func() bool {
		var n int
		err := db.QueryRowContext(t.Context(),
			"SELECT COUNT(*) FROM seckill_locks WHERE expires_at > UTC_TIMESTAMP(6) + INTERVAL 2 HOUR").Scan(&n)
		return err == nil && n == len(all)-1
	})
	enough()
	for i, err := range check.Receive(t, "the answers", done) {
		switch {
		case i == 0 && (err == nil || errors.Is(err, lock.ErrLost)):
			t.Errorf("the lock whose row is kept: %v", err)
		case i > 0 && err != nil && !errors.Is(err, context.Canceled): // its answer may still be on its way
			t.Errorf("a lock whose row is free: %v", err)
		}
	}
	check.Must(t, tx.Rollback())
}

// A cut statement answers its context's cause, whatever the driver says. Guard: cutBy in Client.try.
func TestCauseOfCutStatement(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	locks := newLocks(t, table(t, db))
	gone := errors.New("the client hung up")
	for what, want := range map[string]error{"cancel": gone, "deadline": context.DeadlineExceeded, "deadline with a cause": gone} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := locks.Mutex(what)
			cycle(t, m) // the row is there
			tx := keepRow(t, db, what)

			ctx, hangUp := context.WithCancelCause(t.Context())
			defer hangUp(nil)
			switch what {
			case "deadline":
				ctx = check.Expiring(t)
			case "deadline with a cause":
				var stop context.CancelFunc
				ctx, stop = context.WithTimeoutCause(ctx, check.Soon, gone)
				defer stop()
			}
			failed := begin(ctx, m)
			if what == "cancel" {
				check.Eventually(t, "the statement waits for the row", func() bool {
					var n int
					err := db.QueryRowContext(t.Context(),
						"SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'INSERT%'").Scan(&n)
					return err == nil && n > 0
				})
				hangUp(gone)
			}
			check.Is(t, "the statement was cut", check.Receive(t, "the end of the call", failed).err, want)
			check.Must(t, tx.Rollback())
			cycle(t, m) // nothing is in the way
		})
	}
}

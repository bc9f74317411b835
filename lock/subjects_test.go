package lock_test

import (
	"database/sql"
	"testing"

	"github.com/alicebob/miniredis/v2"
	_ "github.com/go-sql-driver/mysql"

	"seckill/internal/testserver"
	"seckill/lock"
)

// subject is one kind of lock under the conformance suite.
type subject struct {
	name string
	// process returns what a new process would make: locks by name, sharing
	// nothing in memory with those of other calls.
	process func(t *testing.T, opts ...lock.ClientOption) func(name string) lock.Locker
	// remove takes the lock behind everybody's back.
	remove func(t *testing.T, name string)
}

func openDB(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", testserver.Schema(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func subjects(t *testing.T) []subject {
	t.Helper()
	var list []subject
	add := func(name string, store func() lock.Store, remove func(t *testing.T, name string)) {
		list = append(list, subject{
			name: name,
			process: func(t *testing.T, opts ...lock.ClientOption) func(string) lock.Locker {
				t.Helper()
				locks := newLocks(t, store(), opts...)
				return func(name string) lock.Locker { return locks.Mutex(name) }
			},
			remove: remove,
		})
	}
	shared := dial(t, testserver.SharedRedis(t))
	del := func(t *testing.T, name string) {
		t.Helper()
		if n := shared.Del(t.Context(), name).Val(); n != 1 {
			t.Fatalf("the key %s was not there", name)
		}
	}
	add("redis", func() lock.Store { return lock.NewRedisStore(shared) }, del)
	add("setnx", func() lock.Store { return lock.NewSetNXStore(shared) }, del)

	mini := miniredis.RunT(t)
	mini.ClockTTL(true)
	embedded := dial(t, "redis://"+mini.Addr())
	add("miniredis", func() lock.Store { return lock.NewRedisStore(embedded) },
		func(_ *testing.T, name string) { mini.Del(name) })

	// One memory for all the "processes", as far as these go there.
	memory := lock.NewMemoryStore()
	add("memory", func() lock.Store { return memory }, func(t *testing.T, name string) {
		t.Helper()
		if was, err := memory.ForceRelease(t.Context(), name); err != nil || !was {
			t.Fatalf("the lock %s was not there: %v", name, err)
		}
	})

	db := openDB(t)
	if err := lock.NewMySQLStore(db).EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	add("mysql", func() lock.Store { return lock.NewMySQLStore(db) }, func(t *testing.T, name string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "DELETE FROM seckill_locks WHERE name = ?", name); err != nil {
			t.Fatal(err)
		}
	})

	var urls []string
	for range 3 {
		urls = append(urls, testserver.Redis(t).URL())
	}
	for name, join := range map[string]func(...lock.Locker) *lock.Quorum{"all": lock.All, "majority": lock.Majority} {
		list = append(list, subject{
			name: name,
			process: func(t *testing.T, opts ...lock.ClientOption) func(string) lock.Locker {
				t.Helper()
				var locks []*lock.Client
				for _, url := range urls {
					locks = append(locks, locksOn(t, dial(t, url), opts...))
				}
				return func(name string) lock.Locker {
					return join(locks[0].Mutex(name), locks[1].Mutex(name), locks[2].Mutex(name))
				}
			},
			remove: func(t *testing.T, name string) {
				t.Helper()
				for _, url := range urls {
					dial(t, url).Del(t.Context(), name)
				}
			},
		})
	}
	return list
}

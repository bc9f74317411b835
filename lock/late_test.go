package lock_test

import (
	"testing"
	"time"

	"seckill/lock"
)

// A copy of a request arrives after its holder has given the lock back, or up:
// it is refused, and nobody is locked out by a lock that nobody knows of. Guard:
// exists latch in acquire.lua and setnx_acquire.lua, released in acquire.sql.
func TestLateCopyIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	db := openDB(t)
	table := lock.NewMySQLStore(db)
	if err := table.EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]lock.Store{
		"redis": lock.NewRedisStore(b.direct), "setnx": lock.NewSetNXStore(b.direct), "mysql": table,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { _ = store.Close() })
			for what, end := range map[string]lock.Request{
				"released":                   {},
				"abandoned, not yet arrived": {Abandon: true},
			} {
				r := lock.Request{Name: name + what, Holder: "00000000-0000-4000-8000-000000000000:7", Holds: 1, Lease: time.Minute}
				if !end.Abandon {
					if grant, err := store.Acquire(t.Context(), r); err != nil || grant.State != lock.StateHeld {
						t.Fatalf("%s: %v, %v", what, grant, err)
					}
				}
				end.Name, end.Holder = r.Name, r.Holder
				if _, err := store.Release(t.Context(), end); err != nil {
					t.Fatal(err)
				}
				if grant, err := store.Acquire(t.Context(), r); err != nil || grant.State == lock.StateHeld {
					t.Errorf("%s: a late copy got the lock: %v, %v", what, grant, err)
				}
				r.Holder = "00000000-0000-4000-8000-000000000000:8"
				if grant, err := store.Acquire(t.Context(), r); err != nil || grant.State != lock.StateHeld {
					t.Errorf("%s: the next holder: %v, %v", what, grant, err)
				}
			}
		})
	}
}

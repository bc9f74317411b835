// Package servicetest is what the tests of service and of its parts share.
package servicetest

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// Table is a database of one voucher whose queries take a millisecond.
type Table struct {
	mu      sync.Mutex
	Voucher model.Voucher
	Users   []string
	Err     error // of every query

	ReadTook   time.Duration // besides QueryTime
	BuyersTook time.Duration
	Queries    atomic.Int64
	BuyersRead atomic.Int64
}

// QueryTime is what a query takes.
const QueryTime = time.Millisecond

// GetMany reads the voucher.
func (db *Table) GetMany(_ context.Context, ids []string) (map[string]model.Voucher, error) {
	db.Queries.Add(1)
	db.mu.Lock()
	v, err, took := db.Voucher.At(time.Now()), db.Err, QueryTime+db.ReadTook
	db.mu.Unlock()
	<-time.After(took)
	found := map[string]model.Voucher{}
	for _, id := range ids {
		if id == v.ID {
			found[id] = v
		}
	}
	return found, err
}

// ShowMany is GetMany.
func (db *Table) ShowMany(ctx context.Context, ids []string) (map[string]model.Voucher, error) {
	return db.GetMany(ctx, ids)
}

// Buyers reads who has an order, or waits before another one.
func (db *Table) Buyers(_ context.Context, _ model.Voucher, yield func(string) error) error {
	db.BuyersRead.Add(1)
	<-time.After(db.BuyersTook)
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, user := range db.Users {
		if err := yield(user); err != nil {
			return err
		}
	}
	return db.Err
}

// With works on the table while no query does.
func (db *Table) With(work func(db *Table)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	work(db)
}

// Change changes the voucher.
func (db *Table) Change(f func(v *model.Voucher)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	f(&db.Voucher)
	db.Voucher.Version++
}

// NewTable is a voucher on sale with 10 of 10 units left.
func NewTable() *Table {
	return &Table{Voucher: model.Voucher{
		ID: "v1", Version: 1, VoucherFields: model.VoucherFields{
			State: model.VoucherPublished, Stock: 10, Remaining: 10, BeginAt: time.Now().Add(-time.Hour),
			EndAt: time.Now().Add(time.Hour),
		},
	}}
}

// Bubble runs a subtest beside the others, on a clock of its own.
func Bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

// Pass lets time pass on the clock of a bubble, which goes as fast as the test does.
func Pass(d time.Duration) {
	inBubble()
	<-time.After(d)
}

// Lasting is a context that ends with the test, or after so long on the clock of a bubble.
func Lasting(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	inBubble()
	ctx, end := context.WithTimeout(t.Context(), d)
	t.Cleanup(end)
	return ctx
}

// Took checks how long something took on a bubble's clock, for which no machine is too slow.
func Took(t *testing.T, what string, began time.Time, least, most time.Duration) {
	t.Helper()
	inBubble()
	if took := time.Since(began); took < least || took > most {
		t.Errorf("%s: after %v, want %v to %v", what, took, least, most)
	}
}

// inBubble stops a test that would measure the machine. The clock of a bubble begins in the year 2000.
func inBubble() {
	const latest = 2020
	if time.Now().Year() > latest {
		panic("this is no bubble of synctest: the test would wait for the machine's clock, or measure it")
	}
}

// Hears checks what somebody is answered: an error with a code, or none where the code is empty.
func Hears(t *testing.T, who string, err error, want model.Code) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && model.CodeOf(err) != want {
		t.Errorf("%s: error %v, want %q", who, err, want)
	}
}

// Counted is the value of a counter or gauge, over all its labels.
func Counted(t *testing.T, metrics *prometheus.Registry, name string) float64 {
	t.Helper()
	for _, family := range check.Value(metrics.Gather())(t) {
		if family.GetName() == name {
			sum := 0.0
			for _, metric := range family.GetMetric() {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
			return sum
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// Main is testserver.Main on one processor where races are looked for: with many timers in a bubble of synctest the
// race detector may die on several (https://go.dev/issue/78156). On one it sees races all the same.
func Main(m *testing.M) {
	built, _ := debug.ReadBuildInfo()
	if slices.Contains(built.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		runtime.GOMAXPROCS(1)
	}
	testserver.Main(m)
}

// Locks are locks of one process; a test can make them slow, busy or lost.
type Locks struct {
	mu       sync.Mutex
	Held     map[string]bool
	Took     time.Duration
	Err      error
	Lost     bool
	Lasts    time.Duration        // of leases that are lost; zero: lost at once
	Busy     string               // the name of a lock another process holds
	Left     func() time.Duration // of the lease of that one; nil: it was just renewed
	renewed  time.Duration
	Tried    atomic.Int64
	Taken    atomic.Int64
	Released atomic.Int64
}

// NewLocks are free.
func NewLocks() *Locks { return &Locks{Held: map[string]bool{}} }

// Lock implements model.Locker.
func (l *Locks) Lock(ctx context.Context, name string, wait time.Duration) (model.Lease, error) {
	l.Tried.Add(1)
	l.mu.Lock()
	took := l.Took
	if name == l.Busy {
		took += wait
	}
	l.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Err != nil {
		return nil, l.Err
	}
	if name == l.Busy || l.Held[name] {
		return nil, model.ErrLockBusy
	}
	l.Taken.Add(1)
	l.Held[name] = true
	lease := &lease{locks: l, name: name, ctx: context.Background()}
	if l.Lost {
		var cancel context.CancelFunc
		lease.ctx, cancel = context.WithCancel(lease.ctx)
		if time.AfterFunc(l.Lasts, cancel); l.Lasts == 0 {
			cancel()
		}
	}
	return lease, nil
}

// Holder tells who has a lock.
func (l *Locks) Holder(_ context.Context, name string) (string, time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case name == l.Busy && l.Left != nil:
		return "another", l.Left(), nil
	case name == l.Busy:
		l.renewed++
		return "another", l.renewed, nil
	}
	return "", 0, nil
}

// ForceUnlock frees a lock.
func (l *Locks) ForceUnlock(_ context.Context, name string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := name == l.Busy
	if was {
		l.Busy = ""
	}
	return was, nil
}

// With changes the locks while they are in use.
func (l *Locks) With(change func(l *Locks)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// Holds reports whether a user's lock is held.
func (l *Locks) Holds(userID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Held["lock:order:"+userID]
}

type lease struct {
	locks *Locks
	name  string
	ctx   context.Context
}

func (l *lease) Context() context.Context { return l.ctx }

func (l *lease) Unlock() error {
	l.locks.mu.Lock()
	defer l.locks.mu.Unlock()
	delete(l.locks.Held, l.name)
	l.locks.Released.Add(1)
	return nil
}

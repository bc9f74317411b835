package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/model"
)

// table is a database of one voucher whose queries take a millisecond.
type table struct {
	mu      sync.Mutex
	voucher model.Voucher
	users   []string
	err     error

	buyersTook time.Duration
	queries    atomic.Int64
	buyersRead atomic.Int64
}

const queryTime = time.Millisecond

func (db *table) GetMany(_ context.Context, ids []string) (map[string]model.Voucher, error) {
	db.queries.Add(1)
	db.mu.Lock()
	v, err := db.voucher.At(time.Now()), db.err
	db.mu.Unlock()
	<-time.After(queryTime)
	found := map[string]model.Voucher{}
	for _, id := range ids {
		if id == v.ID {
			found[id] = v
		}
	}
	return found, err
}

func (db *table) Buyers(_ context.Context, _ string, yield func(string) error) error {
	db.buyersRead.Add(1)
	<-time.After(db.buyersTook)
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, user := range db.users {
		if err := yield(user); err != nil {
			return err
		}
	}
	return db.err
}

func (db *table) change(f func(v *model.Voucher)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	f(&db.voucher)
	db.voucher.Version++
}

func (db *table) fail(err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.err = err
}

// newTable is a voucher on sale with 10 of 10 units left.
func newTable() *table {
	return &table{voucher: model.Voucher{
		ID: "v1", State: model.VoucherPublished, Stock: 10, Remaining: 10, Version: 1,
		BeginAt: time.Now().Add(-time.Hour), EndAt: time.Now().Add(time.Hour),
	}}
}

func newCache(t *testing.T, db *table) *VoucherCache {
	t.Helper()
	c, err := NewVoucherCache(db, db, telemetry.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func refusal(t *testing.T, c *VoucherCache, userID string) error {
	t.Helper()
	held, err := c.copy(t.Context(), "v1")
	if err != nil {
		t.Fatalf("copy: %v", err)
	}
	return held.refusal(userID, time.Now())
}

func TestConcurrentRequestsShareOneReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { _ = refusal(t, c, "u") })
		}
		wg.Wait()
		if n := db.queries.Load(); n != 1 {
			t.Errorf("%d queries for 100 concurrent requests", n)
		}
	})
}

func TestChangeIsObeyedWithinASecondThoughEveryMessageIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		for _, idle := range []time.Duration{10 * time.Millisecond, 2 * time.Second} { // busy and quiet
			_ = refusal(t, c, "u")
			db.change(func(v *model.Voucher) { v.State = model.VoucherPaused })
			for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
				_ = refusal(t, c, "u")
				<-time.After(idle)
			}
			if err := refusal(t, c, "u"); model.CodeOf(err) != model.CodePaused {
				t.Errorf("a second after the pause: %v", err)
			}
			db.change(func(v *model.Voucher) { v.State = model.VoucherPublished })
			<-time.After(time.Second)
			if err := refusal(t, c, "u"); err != nil {
				t.Errorf("a second after the pause ended: %v", err)
			}
		}
	})
}

func TestDropIsObeyedAtOnceAlsoByAReadingUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		done := make(chan error)
		go func() { done <- refusal(t, c, "u") }()
		synctest.Wait() // the reading has seen the voucher published, and is on its way
		db.change(func(v *model.Voucher) { v.State = model.VoucherPaused })
		c.Drop("v1")
		<-time.After(time.Microsecond)
		if err := refusal(t, c, "u"); model.CodeOf(err) != model.CodePaused {
			t.Errorf("after the drop: %v, want PAUSED", err)
		}
		<-done
	})
}

func TestSoldOutIsToldFromMemoryButNotToBuyers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		_ = refusal(t, c, "u")
		db.change(func(v *model.Voucher) { v.Remaining = 0 })
		for i := range 10 {
			db.users = append(db.users, fmt.Sprint("winner", i))
		}
		c.soldOut("v1")
		c.soldOut("v1")
		<-time.After(time.Microsecond)
		for _, winner := range db.users {
			if err := refusal(t, c, winner); err != nil {
				t.Errorf("a winner was told %v from memory", err)
			}
		}
		if err := refusal(t, c, "loser"); model.CodeOf(err) != model.CodeSoldOut {
			t.Errorf("a loser was told %v, want SOLD_OUT", err)
		}
		for range 50 { // the copy is read anew again and again, its buyers once
			<-time.After(100 * time.Millisecond)
			_ = refusal(t, c, "loser")
		}
		if n := db.buyersRead.Load(); n != 1 {
			t.Errorf("the buyers were read %d times though nothing changed", n)
		}
		db.change(func(v *model.Voucher) { v.Stock, v.Remaining = 15, 5 })
		<-time.After(time.Second)
		if err := refusal(t, c, "loser"); err != nil {
			t.Errorf("a second after the restock: %v", err)
		}
	})
}

func TestOldCopyIsNotAnsweredFromWhenTheDatabaseIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		_ = refusal(t, c, "u")
		db.fail(model.Unavailable("gone", nil))
		<-time.After(time.Second)
		if _, err := c.copy(t.Context(), "v1"); model.CodeOf(err) != model.CodeUnavailable {
			t.Errorf("copy = %v, want UNAVAILABLE", err)
		}
		db.fail(nil)
		if _, err := c.copy(t.Context(), "v1"); err != nil {
			t.Errorf("after the database is back: %v", err)
		}
	})
}

func TestReadNeverAnswersFromACopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		for sold := range int64(10) {
			v, err := c.Read(t.Context(), "v1")
			if err != nil || v.Remaining != 10-sold {
				t.Fatalf("read %d, %v; want %d", v.Remaining, err, 10-sold)
			}
			db.change(func(v *model.Voucher) { v.Remaining-- })
		}
		if _, err := c.Read(t.Context(), "unknown"); model.CodeOf(err) != model.CodeNotFound {
			t.Errorf("unknown voucher: %v", err)
		}
	})
}

// A long list of buyers is read behind the requests' backs: until it is known
// everybody takes the whole road, and nobody waits for it.
func TestManyBuyersAreReadBehindTheRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		db.change(func(v *model.Voucher) { v.Remaining = 0 })
		db.users = []string{"winner"}
		db.buyersTook = 10 * time.Second
		c := newCache(t, db)
		defer c.Close(context.Background())
		for began := time.Now(); time.Since(began) < 9*time.Second; <-time.After(50 * time.Millisecond) {
			asked := time.Now()
			if err := refusal(t, c, "loser"); err != nil {
				t.Fatalf("before the buyers are known: %v, want to ask the database", err)
			}
			if took := time.Since(asked); took > 100*time.Millisecond {
				t.Fatalf("a request waited %v", took)
			}
		}
		<-time.After(2 * time.Second)
		if err := refusal(t, c, "loser"); model.CodeOf(err) != model.CodeSoldOut {
			t.Errorf("a loser was told %v, want SOLD_OUT", err)
		}
		if err := refusal(t, c, "winner"); err != nil {
			t.Errorf("a winner was told %v from memory", err)
		}
		if n := db.buyersRead.Load(); n != 1 {
			t.Errorf("the buyers were read %d times", n)
		}
	})
}

func TestBuyersThatCannotBeReadCostTheWholeRoadOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := newTable()
		db.change(func(v *model.Voucher) { v.Remaining = 0 })
		c, err := NewVoucherCache(db, noBuyers{}, telemetry.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.Background())
		for range 100 {
			if err := refusal(t, c, "anybody"); err != nil {
				t.Fatalf("%v, want to ask the database", err)
			}
			<-time.After(100 * time.Millisecond)
		}
	})
}

// noBuyers cannot tell who has orders.
type noBuyers struct{}

func (noBuyers) Buyers(context.Context, string, func(string) error) error {
	return model.Unavailable("gone", nil)
}

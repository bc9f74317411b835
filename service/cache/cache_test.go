package cache

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/internal/testserver"
	"seckill/model"
	"seckill/service/servicetest"
)

func newCache(t *testing.T, db *servicetest.Table) *Vouchers {
	t.Helper()
	c := testserver.Value(OfDatabase(db, telemetry.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)))(t)
	return c
}

func refusal(t *testing.T, c *Vouchers, userID string) error {
	t.Helper()
	held, err := c.entry(t.Context(), "v1")
	if err != nil {
		t.Fatalf("entry: %v", err)
	}
	return held.refusal(userID, time.Now())
}

func TestConcurrentRequestsShareOneReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := servicetest.NewTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { _ = refusal(t, c, "u") })
		}
		wg.Wait()
		if n := db.Queries.Load(); n != 1 {
			t.Errorf("%d queries for 100 concurrent requests", n)
		}
	})
}

func TestChangeIsObeyedWithinASecondThoughEveryMessageIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := servicetest.NewTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		for _, idle := range []time.Duration{10 * time.Millisecond, 2 * time.Second} { // busy and quiet
			_ = refusal(t, c, "u")
			db.Change(func(v *model.Voucher) { v.State = model.VoucherPaused })
			for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
				_ = refusal(t, c, "u")
				<-time.After(idle)
			}
			if err := refusal(t, c, "u"); model.CodeOf(err) != model.CodePaused {
				t.Errorf("a second after the pause: %v", err)
			}
			db.Change(func(v *model.Voucher) { v.State = model.VoucherPublished })
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
		db := servicetest.NewTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		done := make(chan error)
		go func() { done <- refusal(t, c, "u") }()
		synctest.Wait() // the reading has seen the voucher published, and is on its way
		db.Change(func(v *model.Voucher) { v.State = model.VoucherPaused })
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
		db := servicetest.NewTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		_ = refusal(t, c, "u")
		db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		for i := range 10 {
			db.Users = append(db.Users, fmt.Sprint("winner", i))
		}
		c.SoldOut("v1")
		c.SoldOut("v1")
		<-time.After(time.Microsecond)
		for _, winner := range db.Users {
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
		if n := db.BuyersRead.Load(); n != 1 {
			t.Errorf("the buyers were read %d times though nothing changed", n)
		}
		db.Change(func(v *model.Voucher) { v.Stock, v.Remaining = 15, 5 })
		<-time.After(time.Second)
		if err := refusal(t, c, "loser"); err != nil {
			t.Errorf("a second after the restock: %v", err)
		}
	})
}

func TestOldCopyIsNotAnsweredFromWhenTheDatabaseIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := servicetest.NewTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		_ = refusal(t, c, "u")
		db.Fail(model.Unavailable("gone", nil))
		<-time.After(time.Second)
		if _, err := c.entry(t.Context(), "v1"); model.CodeOf(err) != model.CodeUnavailable {
			t.Errorf("copy = %v, want UNAVAILABLE", err)
		}
		db.Fail(nil)
		if _, err := c.entry(t.Context(), "v1"); err != nil {
			t.Errorf("after the database is back: %v", err)
		}
	})
}

func TestReadNeverAnswersFromACopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := servicetest.NewTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		for sold := range int64(10) {
			v, err := c.Read(t.Context(), "v1")
			if err != nil || v.Remaining != 10-sold {
				t.Fatalf("read %d, %v; want %d", v.Remaining, err, 10-sold)
			}
			db.Change(func(v *model.Voucher) { v.Remaining-- })
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
		db := servicetest.NewTable()
		db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		db.Users = []string{"winner"}
		db.BuyersTook = 10 * time.Second
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
		if n := db.BuyersRead.Load(); n != 1 {
			t.Errorf("the buyers were read %d times", n)
		}
	})
}

func TestBuyersThatCannotBeReadCostTheWholeRoadOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := servicetest.NewTable()
		db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		c := testserver.Value(OfDatabase(noBuyers{db}, telemetry.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)))(t)
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
type noBuyers struct{ *servicetest.Table }

func (noBuyers) Buyers(context.Context, string, func(string) error) error {
	return model.Unavailable("gone", nil)
}

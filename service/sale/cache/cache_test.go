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

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// inCache runs a test on a cache of a database's voucher, on a clock of its own.
func inCache(t *testing.T, test func(*testing.T, *servicetest.Table, *Vouchers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := servicetest.NewTable()
		c := newCache(t, db)
		defer c.Close(context.Background())
		test(t, db, c)
	})
}

func newCache(t *testing.T, db Database) *Vouchers {
	t.Helper()
	return check.Value(OfDatabase(db, telemetry.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)))(t)
}

func refusal(t *testing.T, c *Vouchers, userID string) error {
	t.Helper()
	return check.Value(c.entry(t.Context(), "v1"))(t).refusal(userID, time.Now())
}

// hears checks what a user is told from memory: a code, or nothing.
func hears(t *testing.T, c *Vouchers, when, userID string, want model.Code) {
	t.Helper()
	servicetest.Hears(t, when+", from memory, "+userID, refusal(t, c, userID), want)
}

func TestConcurrentRequestsShareOneReading(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { _ = refusal(t, c, "u") })
		}
		wg.Wait()
		check.Equal(t, "queries for 100 concurrent requests", db.Queries.Load(), 1)
	})
}

func TestChangeIsObeyedWithinASecondThoughEveryMessageIsLost(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		for _, idle := range []time.Duration{10 * time.Millisecond, 2 * time.Second} { // busy and quiet
			_ = refusal(t, c, "u")
			db.Change(func(v *model.Voucher) { v.State = model.VoucherPaused })
			for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
				_ = refusal(t, c, "u")
				servicetest.Pass(idle)
			}
			hears(t, c, "a second after the pause", "u", model.CodePaused)
			db.Change(func(v *model.Voucher) { v.State = model.VoucherPublished })
			servicetest.Pass(time.Second)
			hears(t, c, "a second after the pause ended", "u", "")
		}
	})
}

func TestDropIsObeyedAtOnceAlsoByAReadingUnderWay(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		done := make(chan error)
		go func() { done <- refusal(t, c, "u") }()
		synctest.Wait() // the reading has seen the voucher published, and is on its way
		db.Change(func(v *model.Voucher) { v.State = model.VoucherPaused })
		c.Drop("v1")
		servicetest.Pass(time.Microsecond)
		hears(t, c, "after the drop", "u", model.CodePaused)
		<-done
	})
}

// However fast a voucher changes, a request waits for one reading that began after it came.
func TestChangesThatDoNotEndRefuseNobody(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		over := make(chan struct{})
		var changing sync.WaitGroup
		changing.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					servicetest.Pass(time.Microsecond) // a reading takes longer
					c.Drop("v1")
				}
			}
		})
		for range 100 {
			servicetest.Pass(10 * time.Microsecond)
			before := db.Queries.Load()
			hears(t, c, "while it changes", "u", "")
			if n := db.Queries.Load() - before; n > maxReadings {
				t.Errorf("%d readings for one request", n)
			}
		}
		close(over)
		changing.Wait()
	})
}

// The slot of a voucher may be forgotten while it is read.
func TestReadingOutlivesItsSlot(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, _ *servicetest.Table, c *Vouchers) {
		var first sync.WaitGroup
		first.Go(func() { _ = refusal(t, c, "u") })
		synctest.Wait() // the reading is on its way
		for i := range maxEntries {
			c.slot(fmt.Sprint("other", i))
		}
		hears(t, c, "while it is read", "u", "")
		first.Wait()
	})
}

// A user who buys and cancels again and again makes no other request wait for a reading, and a
// unit that came back is for sale at once.
func TestReturnedUnitVoidsOnlyWhatRefuses(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		_ = refusal(t, c, "u")
		before := db.Queries.Load()
		for range 100 {
			c.Returned("v1")
			servicetest.Pass(time.Microsecond)
			hears(t, c, "units are left", "u", "")
		}
		check.Equal(t, "readings for 100 returned units", db.Queries.Load()-before, 0)

		db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		c.SoldOut("v1")
		servicetest.Pass(time.Microsecond)
		hears(t, c, "sold out", "u", model.CodeSoldOut)
		db.Change(func(v *model.Voucher) { v.Remaining = 1 })
		c.Returned("v1")
		servicetest.Pass(time.Microsecond)
		hears(t, c, "a unit came back", "u", "")
	})
}

// While an instance does not hear what comes back, nobody hears SOLD_OUT from a reading that is older than the request.
func TestDeafInstancesLookBeforeTheyRefuse(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		hears(t, c, "sold out", "u", model.CodeSoldOut)
		c.Deaf()
		servicetest.Pass(time.Microsecond)
		hears(t, c, "sold out still", "u", model.CodeSoldOut)
		db.Change(func(v *model.Voucher) { v.Remaining = 1 })
		servicetest.Pass(time.Microsecond)
		hears(t, c, "a unit came back", "u", "")
		before := db.Queries.Load()
		for range 10 {
			servicetest.Pass(time.Microsecond)
			hears(t, c, "units are left", "u", "")
		}
		check.Equal(t, "readings while units are left", db.Queries.Load()-before, 0)

		c.DropAll()
		db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		servicetest.Pass(2 * budget.Look)
		hears(t, c, "sold out again", "u", model.CodeSoldOut)
		before = db.Queries.Load()
		hears(t, c, "sold out again", "u", model.CodeSoldOut)
		check.Equal(t, "readings once it hears again", db.Queries.Load()-before, 0)
	})
}

func TestSoldOutIsToldFromMemoryButNotToBuyers(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		_ = refusal(t, c, "u")
		db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		for i := range 10 {
			db.Users = append(db.Users, fmt.Sprint("winner", i))
		}
		c.SoldOut("v1")
		c.SoldOut("v1")
		servicetest.Pass(time.Microsecond)
		for _, winner := range db.Users {
			hears(t, c, "sold out", winner, "")
		}
		hears(t, c, "sold out", "loser", model.CodeSoldOut)
		for range 50 { // the copy is read anew again and again, its buyers once
			servicetest.Pass(100 * time.Millisecond)
			_ = refusal(t, c, "loser")
		}
		check.Equal(t, "readings of the buyers, though nothing changed", db.BuyersRead.Load(), 1)
		db.Change(func(v *model.Voucher) { v.Stock, v.Remaining = 15, 5 })
		servicetest.Pass(time.Second)
		hears(t, c, "a second after the restock", "loser", "")
	})
}

func TestOldCopyIsNotAnsweredFromWhenTheDatabaseIsGone(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		_ = refusal(t, c, "u")
		db.Fail(model.Unavailable("gone", nil))
		servicetest.Pass(time.Second)
		servicetest.WantCode(t, check.ErrorOf(c.entry(t.Context(), "v1")), model.CodeUnavailable)
		db.Fail(nil)
		hears(t, c, "after the database is back", "u", "")
	})
}

func TestAVoucherThatWasThereIsNotMissing(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		named := func(id string) func() { return func() { db.With(func(db *servicetest.Table) { db.Voucher.ID = id }) } }
		hide, back := named("hidden"), named("v1")
		hide()
		hears(t, c, "before there is such a voucher", "u", model.CodeNotFound)
		back()
		servicetest.Pass(time.Second)
		hears(t, c, "since there is one", "u", "")
		hide()
		for range 2 {
			servicetest.Pass(time.Second)
			servicetest.WantCode(t, check.ErrorOf(c.entry(t.Context(), "v1")), model.CodeUnavailable)
		}
		back()
		hears(t, c, "after its row is back", "u", "")
	})
}

func TestReadNeverAnswersFromACopy(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		for sold := range int64(10) {
			v, err := c.Read(t.Context(), "v1")
			if err != nil || v.Remaining != 10-sold {
				t.Fatalf("read %d, %v; want %d", v.Remaining, err, 10-sold)
			}
			db.Change(func(v *model.Voucher) { v.Remaining-- })
		}
		servicetest.WantCode(t, check.ErrorOf(c.Read(t.Context(), "unknown")), model.CodeNotFound)
	})
}

// A long list of buyers is read behind the requests' backs: until it is known
// everybody takes the whole road, and nobody waits for it.
func TestManyBuyersAreReadBehindTheRequests(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		db.Users = []string{"winner"}
		db.BuyersTook = 10 * time.Second
		for end := time.Now().Add(9 * time.Second); time.Now().Before(end); servicetest.Pass(50 * time.Millisecond) {
			asked := time.Now()
			hears(t, c, "before the buyers are known", "loser", "")
			servicetest.InTime(t, "a request", asked, 100*time.Millisecond)
		}
		servicetest.Pass(2 * time.Second)
		hears(t, c, "sold out", "loser", model.CodeSoldOut)
		hears(t, c, "sold out", "winner", "")
		check.Equal(t, "readings of the buyers", db.BuyersRead.Load(), 1)
	})
}

func TestBuyersThatCannotBeReadCostTheWholeRoadOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := servicetest.NewTable()
		db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		c := newCache(t, noBuyers{db})
		defer c.Close(context.Background())
		for range 100 {
			hears(t, c, "when nobody knows the buyers", "anybody", "")
			servicetest.Pass(100 * time.Millisecond)
		}
	})
}

// noBuyers cannot tell who has orders.
type noBuyers struct{ *servicetest.Table }

func (noBuyers) Buyers(context.Context, model.Voucher, func(string) error) error {
	return model.Unavailable("gone", nil)
}

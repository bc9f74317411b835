package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/budget"
	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

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
	return check.Value(New(db, nil, telemetry.New(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)))(t)
}

func refusal(t *testing.T, c *Vouchers, userID string) error {
	t.Helper()
	return check.Value(c.entry(t.Context(), "v1"))(t).refusal(userID, time.Now())
}

// hears wants a code from memory, or nothing.
func hears(t *testing.T, c *Vouchers, when, userID string, want model.Code) {
	t.Helper()
	servicetest.Hears(t, when+", from memory, "+userID, refusal(t, c, userID), want)
}

func TestConcurrentRequestsShareOneReading(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		check.Volley(100, func(int) { _ = refusal(t, c, "u") })
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
			n := db.Queries.Load() - before
			check.That(t, n <= maxReadings, "%d readings for one request", n)
		}
		close(over)
		changing.Wait()
	})
}

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

// A user who buys and cancels again and again makes no request wait, and a returned unit is for sale at once.
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

// Without messages about returned units no SOLD_OUT comes from a reading older than the request.
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
		db.With(func(db *servicetest.Table) { db.Err = model.Unavailable("gone", nil) })
		servicetest.Pass(time.Second)
		servicetest.Hears(t, "the caller", check.ErrorOf(c.entry(t.Context(), "v1")), model.CodeUnavailable)
		db.With(func(db *servicetest.Table) { db.Err = nil })
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
			servicetest.Hears(t, "the caller", check.ErrorOf(c.entry(t.Context(), "v1")), model.CodeUnavailable)
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
			check.Need(t, err == nil && v.Remaining == 10-sold, "read %d, %v; want %d", v.Remaining, err, 10-sold)
			db.Change(func(v *model.Voucher) { v.Remaining-- })
		}
		servicetest.Hears(t, "the caller", check.ErrorOf(c.Read(t.Context(), "unknown")), model.CodeNotFound)
	})
}

// Until a long list of buyers is read everybody takes the whole road, and nobody waits for it.
func TestManyBuyersAreReadBehindTheRequests(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		db.Users = []string{"winner"}
		db.BuyersTook = 10 * time.Second
		for end := time.Now().Add(9 * time.Second); time.Now().Before(end); servicetest.Pass(50 * time.Millisecond) {
			asked := time.Now()
			hears(t, c, "before the buyers are known", "loser", "")
			servicetest.Took(t, "a request", asked, 0, 100*time.Millisecond)
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

type noBuyers struct{ *servicetest.Table }

func (noBuyers) Buyers(context.Context, model.Voucher, func(string) error) error {
	return model.Unavailable("gone", nil)
}

type register struct {
	byID    func(ctx context.Context, id string) (model.Account, error)
	changed func(since time.Time, limit int) ([]model.Account, error)
	asked   atomic.Int32
}

func (r *register) ByID(ctx context.Context, id string) (model.Account, error) {
	r.asked.Add(1)
	return r.byID(ctx, id)
}

func (r *register) Changed(_ context.Context, since time.Time, limit int) ([]model.Account, error) {
	return r.changed(since, limit)
}

func accountsOf(t *testing.T, source *register) *Accounts {
	t.Helper()
	known, err := NewAccounts(AccountSource{ByID: source.ByID, Changed: source.Changed}, time.Hour,
		slog.New(slog.DiscardHandler))
	check.Must(t, err)
	return known
}

func pass(d time.Duration) { <-time.After(d) }

func changedAt(id string, version int64, at time.Time) model.Account {
	return model.Account{ID: id, Version: version, ChangedAt: &at}
}

func TestAChangeIsKnownWithinASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var list atomic.Pointer[[]model.Account]
		list.Store(&[]model.Account{changedAt("early", 3, time.Now().Add(-30*time.Minute))})
		var oldest atomic.Pointer[time.Time]
		source := &register{changed: func(since time.Time, _ int) ([]model.Account, error) {
			oldest.Store(&since)
			return *list.Load(), nil
		}}
		known := accountsOf(t, source)
		check.Must(t, known.Refresh(t.Context()))
		since := *oldest.Load()
		check.That(t, time.Since(since) == time.Hour, "at first the changes since %s are read", time.Since(since))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			known.Watch(ctx)
		}()
		for version, ended := range map[int64]bool{0: true, 1: true, 2: true, 3: false, 4: false} {
			check.That(t, over(known, "early", version) == ended && !over(known, "other", version),
				"version %d of an account that is at 3: %v", version, !ended)
		}
		disabled := changedAt("late", 1, time.Now())
		disabled.Disabled = true
		list.Store(&[]model.Account{disabled})
		pass(time.Second)
		if !over(known, "late", 1) || !over(known, "late", 7) || !over(known, "early", 2) {
			t.Error("a second later a disabled account's token counts, or an earlier change is forgotten")
		}
		if since := *oldest.Load(); time.Since(since) > budget.Survey+2*time.Second ||
			time.Since(since) < budget.Survey {
			t.Errorf("the changes of the last %s are read", time.Since(since))
		}
		// An older reading that comes late takes nothing back.
		list.Store(&[]model.Account{changedAt("early", 2, time.Now().Add(-40*time.Minute))})
		pass(time.Second)
		check.That(t, over(known, "early", 2), "an old change has overwritten a newer one")
		cancel()
		<-done
	})
}

func TestChangesAreBounded(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Minute)
	source := &register{changed: func(time.Time, int) ([]model.Account, error) {
		all := make([]model.Account, maxChanges+10)
		for n := range all {
			all[len(all)-1-n] = changedAt(fmt.Sprint(n), 2, began.Add(time.Duration(n)))
		}
		return all, nil
	}}
	known := accountsOf(t, source)
	check.Must(t, known.Refresh(t.Context()))
	check.Equal(t, "changes that are remembered", known.changed.Len(), maxChanges)
	check.That(t, over(known, fmt.Sprint(maxChanges+9), 1) && !over(known, "0", 1),
		"the latest were to stay, and the oldest to go")
}

func TestOneQuestionForOneAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &register{}
		source.byID = func(_ context.Context, id string) (model.Account, error) {
			pass(100 * time.Millisecond)
			switch id {
			case "none":
				return model.Account{}, model.NotFound("account")
			case "away":
				return model.Account{}, model.Unavailable("away", nil)
			}
			return model.Account{ID: id, Version: int64(source.asked.Load()), PasswordHash: "$x"}, nil
		}
		known := accountsOf(t, source)
		ask := func(id string, version int64, code model.Code, version2 int64, asked int32) {
			t.Helper()
			before := source.asked.Load()
			check.Volley(50, func(int) {
				got, err := known.Account(t.Context(), id, version)
				if (err != nil) != (code != "") || err != nil && model.CodeOf(err) != code || got.Version != version2 ||
					got.PasswordHash != "" {
					t.Errorf("%s: %+v, %v", id, got, err)
				}
			})
			n := source.asked.Load() - before
			check.That(t, n == asked, "%s: fifty requests asked %d times, want %d", id, n, asked)
		}
		ask("root", 1, "", 1, 1)
		ask("root", 1, "", 1, 0)
		ask("root", 2, "", 2, 1) // the token shows that there is a newer version
		pass(700 * time.Millisecond)
		ask("root", 1, "", 2, 0)
		pass(200 * time.Millisecond)
		ask("root", 1, "", 3, 1)
		known.Note(model.Account{ID: "root"})
		ask("root", 1, "", 4, 1)
		ask("none", 1, model.CodeNotFound, 0, 1)
		ask("none", 1, model.CodeNotFound, 0, 0)
		ask("away", 1, model.CodeUnavailable, 0, 1)
		ask("away", 1, model.CodeUnavailable, 0, 1)
	})
}

// A question that hangs is not answered with what was so when it was asked.
func TestAnAnswerIsNotOlderThanASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &register{}
		source.byID = func(_ context.Context, id string) (model.Account, error) {
			version := int64(source.asked.Load())
			pass(1500 * time.Millisecond)
			return model.Account{ID: id, Version: version}, nil
		}
		known := accountsOf(t, source)
		go func() { _, _ = known.Account(t.Context(), "root", 1) }()
		pass(1200 * time.Millisecond)
		got, err := known.Account(t.Context(), "root", 1)
		check.That(t, err == nil && got.Version == 2, "%+v, %v: want what a second question learnt", got, err)
		hasty, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := known.Account(hasty, "other", 1); err == nil {
			t.Error("a caller without time waits")
		}
		pass(5 * time.Second)
	})
}

func over(known *Accounts, id string, version int64) bool {
	ended, _ := known.Changed(id, version)
	return ended
}

// A unit changed buyers, and nothing remained at either reading: only the version shows it. The new buyer may have lost
// the answer, and must get that order.
func TestBuyersOfAnotherVersionAreReadAnew(t *testing.T) {
	t.Parallel()
	inCache(t, func(t *testing.T, db *servicetest.Table, c *Vouchers) {
		sellTo := func(user string) {
			db.With(func(db *servicetest.Table) { db.Users = []string{user} })
			db.Change(func(v *model.Voucher) { v.Remaining = 0 })
		}
		sellTo("early")
		hears(t, c, "sold out", "late", model.CodeSoldOut)
		hears(t, c, "sold out", "early", "")
		<-time.After(budget.Look)
		sellTo("late")
		<-time.After(time.Second)
		synctest.Wait()
		hears(t, c, "sold to another one", "late", "")
		hears(t, c, "sold to another one", "nobody", model.CodeSoldOut)
	})
}

// The window is by the database's clock; this machine's is an hour off, and told the copy 20 ms after `asked`.
func TestRefusalCarriesTheDatabasesClockOn(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 11, 10, 0, 0, 0, time.UTC)
	end := begin.Add(time.Minute)
	const roundTrip = 20 * time.Millisecond

	const anEntry model.Code = "ENTRY"
	for name, tt := range map[string]struct {
		state    model.VoucherState
		database time.Time     // its clock when it read the voucher
		later    time.Duration // since the copy was told
		want     model.Code    // empty: ask the database
		groups   string        // of the voucher: "staff", or early "gold"; "draw": it is drawn, and closed in Redis
	}{
		"well before":              {model.VoucherPublished, begin.Add(-time.Hour), 0, model.CodeNotStarted, ""},
		"just before":              {model.VoucherPublished, begin.Add(-21 * time.Millisecond), 0, model.CodeNotStarted, ""},
		"at the opening edge":      {model.VoucherPublished, begin.Add(-10 * time.Millisecond), 0, "", ""},
		"open":                     {model.VoucherPublished, begin.Add(time.Second), 0, "", ""},
		"opened since the reading": {model.VoucherPublished, begin.Add(-100 * time.Millisecond), 200 * time.Millisecond, "", ""},
		"at the closing edge":      {model.VoucherPublished, end.Add(-10 * time.Millisecond), 0, "", ""},
		"at the end":               {model.VoucherPublished, end, 0, model.CodeEnded, ""},
		"ended since the reading":  {model.VoucherPublished, end.Add(-100 * time.Millisecond), 200 * time.Millisecond, model.CodeEnded, ""},
		"paused":                   {model.VoucherPaused, begin.Add(time.Second), 0, model.CodePaused, ""},
		"paused before the begin":  {model.VoucherPaused, begin.Add(-time.Hour), 0, model.CodePaused, ""},
		"paused at the end's edge": {model.VoucherPaused, end.Add(-10 * time.Millisecond), 0, "", ""},
		"paused after the end":     {model.VoucherPaused, end.Add(time.Hour), 0, model.CodeEnded, ""},
		"draft":                    {model.VoucherDraft, begin.Add(time.Second), 0, model.CodeNotFound, ""},
		"archived":                 {model.VoucherArchived, end.Add(time.Hour), 0, model.CodeNotFound, ""},
		"not for gold":             {model.VoucherPublished, begin.Add(time.Second), 0, model.CodeNotEligible, "staff"},
		"not for gold, ended":      {model.VoucherPublished, end, 0, model.CodeNotEligible, "staff"},
		"not for gold, paused":     {model.VoucherPaused, begin.Add(-time.Hour), 0, model.CodeNotEligible, "staff"},
		"not for gold, a draft":    {model.VoucherDraft, begin, 0, model.CodeNotFound, "staff"},
		"early":                    {model.VoucherPublished, begin.Add(-time.Minute + time.Second), 0, "", "gold"},
		"early, at the edge":       {model.VoucherPublished, begin.Add(-time.Minute - 10*time.Millisecond), 0, "", "gold"},
		"before it is early":       {model.VoucherPublished, begin.Add(-time.Minute - time.Second), 0, model.CodeNotStarted, "gold"},
		"drawn":                    {model.VoucherPublished, begin.Add(time.Second), 0, anEntry, "draw"},
		"drawn, at the end's edge": {model.VoucherPublished, end.Add(-10 * time.Millisecond), 0, anEntry, "draw"},
		"drawn, ended":             {model.VoucherPublished, end, 0, model.CodeEnded, "draw"},
		"drawn, paused":            {model.VoucherPaused, begin.Add(time.Second), 0, model.CodePaused, "draw"},
		"early for others":         {model.VoucherPublished, begin.Add(-time.Second), 0, model.CodeNotStarted, "early for staff"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := time.Now()
			held := &entry{
				asked: asked, told: asked.Add(roundTrip),
				voucher: model.Voucher{
					VoucherFields: model.VoucherFields{
						State: tt.state, BeginAt: begin, EndAt: end, Stock: 1,
						Remaining: 1,
					},
					VoucherView: model.VoucherView{ServerTime: tt.database},
				},
			}
			switch tt.groups {
			case "staff":
				held.voucher.Groups = model.Groups{"staff"}
			case "draw":
				held.voucher.Allocation, held.voucher.Remaining, held.closed = model.ByDraw, 0, true
			case "gold", "early for staff":
				held.voucher.Early = model.Early{
					For:  model.Groups{strings.TrimPrefix(tt.groups, "early for ")},
					From: new(begin.Add(-time.Minute)),
				}
			}
			err := held.refusal("anybody", held.told.Add(tt.later), "gold")
			if tt.want == anEntry {
				check.Is(t, "it is an entry", err, model.ErrEntry)
				return
			}
			servicetest.Hears(t, "anybody", err, tt.want)
			refused, _ := errors.AsType[*model.Error](err)
			check.That(t, tt.want != model.CodeNotStarted || refused.RetryAfter > 0, "no time to come again: %+v",
				refused)
		})
	}
}

// At the edges only the seller decides: an ended sale is not sold out, and a closed copy neither refuses nor is asked.
func TestNothingIsToldAtTheEdges(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 11, 10, 0, 0, 0, time.UTC)
	end := begin.Add(time.Minute)
	const close = 10 * time.Millisecond
	for database, edge := range map[time.Time]bool{begin.Add(-close): true, begin.Add(time.Second): false, end.Add(-close): true} {
		asked := time.Now()
		held := &entry{
			asked: asked, told: asked.Add(2 * close), buyers: &buyers{filter: bloom.NewWithEstimates(1, falseBuyers)},
			voucher: model.Voucher{
				VoucherFields: model.VoucherFields{State: model.VoucherPublished, BeginAt: begin, EndAt: end, Stock: 1},
				VoucherView:   model.VoucherView{ServerTime: database},
			},
		}
		for _, held.closed = range []bool{false, true} {
			for held.voucher.Remaining = range int64(2) {
				switch err := held.refusal("anybody", held.told); {
				case edge || !held.closed && held.voucher.Remaining > 0:
					check.Must(t, err)
				case held.closed:
					check.Is(t, "a closed copy", err, model.ErrCopyClosed)
				default:
					servicetest.Hears(t, "the caller", err, model.CodeSoldOut)
				}
			}
		}
	}
}

func TestMain(m *testing.M) { servicetest.Main(m) }

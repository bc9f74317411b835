package repository_test

import (
	"context"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorm.io/gorm"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// mode checks how the database is sold from.
func (f *fixture) mode(t testing.TB, want model.OrderMode) {
	t.Helper()
	check.Equal(t, "the order mode", check.Value(f.modes.Read(t.Context()))(t).Mode, want)
}

// TestAdopt: an instance decides how a new database is sold from, and nobody does once there is a voucher.
func TestAdopt(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		f.mode(t, model.ModeSync)
		for _, mode := range []model.OrderMode{model.ModeAsync, model.ModeAsync, model.ModeSync, model.ModeAsync} {
			got := check.Value(f.modes.Adopt(t.Context(), mode))(t)
			if got.Mode != mode || !regexp.MustCompile(`^[a-z0-9]{16}$`).MatchString(got.Deployment) {
				t.Errorf("adopted %+v, want %s", got, mode)
			}
		}
		f.switchTo(t, model.ModeSync)
		f.onSale(t, 1)
		got := check.Value(f.modes.Adopt(t.Context(), model.ModeAsync))(t)
		check.Equal(t, "the mode adopted with a voucher", got.Mode, model.ModeSync)
		f.mode(t, model.ModeSync)
		wantCode(t, check.ErrorOf(f.modes.Adopt(t.Context(), "semisync")), model.CodeValidation)
	})
}

// TestAdoptAtOnce: instances of both modes and the first voucher at once. Once the voucher is there the mode is fixed.
func TestAdoptAtOnce(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		var afterwards atomic.Value // the mode seen by who made the voucher
		check.Volley(9, func(i int) {
			if i == 8 {
				f.onSale(t, 1)
				got, err := f.modes.Read(t.Context())
				if err != nil {
					t.Error(err)
				}
				afterwards.Store(got.Mode)
				return
			}
			check.Is(t, "the call", check.ErrorOf(f.modes.Adopt(t.Context(), []model.OrderMode{model.ModeSync, model.ModeAsync}[i%2])), nil)
		})
		if got, ok := afterwards.Load().(model.OrderMode); ok {
			f.mode(t, got)
		}
	})
}

// TestAdoptWaitsForTheFirstVoucher that another call is just making.
func TestAdoptWaitsForTheFirstVoucher(t *testing.T) {
	t.Parallel()
	near := newFixture(t, stores()[0])
	done := make(chan model.ModeRecord, 1)
	far := near.through(t, onceOn("COMMIT", func(*wire) verdict {
		go func() {
			got, err := near.modes.Adopt(t.Context(), model.ModeAsync)
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		check.Eventually(t, "adoption waits", func() bool { return near.blocked(t, "order_mode") })
		return pass
	}))
	far.onSale(t, 1)
	check.Equal(t, "the mode adopted while a voucher was being made", (<-done).Mode, model.ModeSync)
}

// TestModeChange: also when it is repeated. A hot copy that was open is not afterwards, whenever its sale was: the
// voucher may be sold in the other mode and come back. One that was never made begins no epoch.
func TestModeChange(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		v, over, never := f.onSale(t, 1), f.onSale(t, 1), f.onSale(t, 1)
		f.opened(t, v.ID)
		f.opened(t, over.ID)
		check.Must(t, check.ErrorOf(f.vouchers.Patch(t.Context(), over.ID, model.VoucherPatch{BeginAt: new(time.Now().Add(-72 * time.Hour)), EndAt: new(time.Now().Add(-48 * time.Hour))})))
		before := map[string]model.EpochRecord{v.ID: f.record(t, v.ID), over.ID: f.record(t, over.ID)}
		for range 2 {
			check.Must(t, f.modes.Change(t.Context(), model.ModeSync))
			f.mode(t, model.ModeSync)
			for id, was := range before {
				if r := f.record(t, id); r.Open() || r.Epoch != was.Epoch+1 || r.OpenEpoch != was.OpenEpoch || r.Progress != nil || r.Revision <= was.Revision {
					t.Errorf("%+v became %+v", was, r)
				}
			}
			check.Equal(t, "the epoch of a voucher without a hot copy", f.record(t, never.ID).Epoch, 0)
		}
		f.asIn(t, model.ModeSync)
		check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
		check.Must(t, f.modes.Change(t.Context(), model.ModeAsync))
		f.mode(t, model.ModeAsync)
		wantCode(t, f.place(t, order(t, never.ID, "alice")).Err, model.CodeUnavailable)
		wantCode(t, f.modes.Change(t.Context(), ""), model.CodeValidation)
		audit := check.Value(f.vouchers.Audit(t.Context(), v.ID))(t)
		check.Equal(t, "the mode that the audit names", audit.Mode, model.ModeAsync)
	})
}

// TestLimits: what was set stays, each by itself, and everything else is the settings'.
func TestLimits(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		limits := repository.NewLimits(f.db)
		settings := model.Limits{User: model.Rate{Events: 20, Per: time.Second}, Addr: model.Rate{Events: 1000, Per: time.Second}}
		holds := func(want model.Limits) {
			t.Helper()
			record := check.Value(limits.Read(t.Context()))(t)
			if got := record.Set.Of(settings); got != want || record.Deployment == "" {
				t.Errorf("%v of %q, want %v", got, record.Deployment, want)
			}
		}
		holds(settings)
		hourly, off := model.Rate{Events: 1_000_000_000, Per: time.Hour}, model.Rate{}
		for _, step := range []struct {
			patch model.LimitsPatch
			want  model.Limits
		}{
			{model.LimitsPatch{User: &hourly}, model.Limits{User: hourly, Addr: settings.Addr}},
			{model.LimitsPatch{Addr: &off}, model.Limits{User: hourly}},
			{model.LimitsPatch{}, model.Limits{User: hourly}},
			{model.LimitsPatch{User: &off, Addr: &hourly}, model.Limits{Addr: hourly}},
		} {
			record := check.Value(limits.Change(t.Context(), step.patch))(t)
			if got := record.Set.Of(settings); got != step.want {
				t.Errorf("changed to %v, want %v", got, step.want)
			}
			holds(step.want)
		}
	})
}

// TestBuyersShareFewConnections: however much buyers write beside purchases, they are in few connections at once, and
// purchases have the rest.
func TestBuyersShareFewConnections(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		share := map[string]int32{sqldb.MySQL: 4, sqldb.SQLite: 1}[f.store.dialect]
		var inside, done atomic.Int32
		entered, end := make(chan struct{}, 100), make(chan struct{})
		var flood sync.WaitGroup
		for n := range cap(entered) {
			ctx := model.OfBuyers(t.Context(), true)
			work := func(*gorm.DB) error {
				inside.Add(1)
				entered <- struct{}{}
				<-end
				done.Add(1)
				return nil
			}
			flood.Go(func() {
				switch {
				case n%3 == 0 || f.store.dialect == sqldb.SQLite: // whose one writer the others would keep
					_ = f.db.Read(ctx, "read for a buyer", work)
				case n%3 == 1:
					_ = f.db.Write(ctx, "write for a buyer", work)
				default:
					_ = f.db.WriteRepeatable(ctx, "write for a buyer", func(tx *gorm.DB, _ bool) error { return work(tx) })
				}
			})
		}
		for range share {
			check.Receive(t, "a buyer's connection", entered)
		}
		var together, purchases sync.WaitGroup
		others := map[string]int{sqldb.MySQL: 8, sqldb.SQLite: 4}[f.store.dialect]
		together.Add(others)
		for range others { // all at once
			purchases.Go(func() {
				check.Must(t, f.db.Read(t.Context(), "purchase", func(db *gorm.DB) error { together.Done(); together.Wait(); return db.Exec("SELECT 1").Error }))
			})
		}
		purchases.Wait()
		check.Equal(t, "of buyers are inside", inside.Load(), share)
		impatient, leave := context.WithCancel(model.OfBuyers(t.Context(), false))
		time.AfterFunc(time.Millisecond, leave)
		wantCode(t, f.db.Write(impatient, "write for a buyer", func(*gorm.DB) error { t.Error("it has found a connection"); return nil }), model.CodeUnavailable)
		close(end)
		flood.Wait()
		check.Equal(t, "of the patient ones came to their turn", done.Load(), int32(cap(entered)))
	})
}

// TestWhatChangesNothingWaitsForNoRow: what a buyer asks for in vain, or has already, is answered while the voucher's
// row, the order's and the place's are locked.
func TestWhatChangesNothingWaitsForNoRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, stores()[0])
	l := lifeOf(f)
	v := f.withWaitlist(t, 2)
	owned, closed := l.bought(t, v.ID, "owner"), l.bought(t, v.ID, "former")
	started := l.started(t, owned)
	_, _, err := l.cancel(t.Context(), "former", closed.ID)
	check.Must(t, err)
	tx := f.begin(t)
	for _, table := range []string{"vouchers", "orders", "waitlist"} {
		execTx(t, tx, "SELECT * FROM "+table+" FOR UPDATE")
	}
	ctx, enough := context.WithTimeout(t.Context(), check.Deadline)
	defer enough()
	for name, c := range map[string]struct {
		do   func() error
		want model.Code
	}{
		"leave without a place":      {func() error { return l.leave(ctx, v.ID, "nobody") }, model.CodeNotFound},
		"leave with an order":        {func() error { return l.leave(ctx, v.ID, "owner") }, model.CodeAlreadyOrdered},
		"cancel another one's order": {func() error { _, _, err := l.cancel(ctx, "nobody", owned.ID); return err }, model.CodeNotFound},
		"cancel again":               {func() error { _, _, err := l.cancel(ctx, "former", closed.ID); return err }, ""},
		"pay another one's order":    {func() error { _, _, err := l.payments.Start(ctx, owned.ID, "nobody", newID(t)); return err }, model.CodeNotFound},
		"pay what is closed":         {func() error { _, _, err := l.payments.Start(ctx, closed.ID, "former", newID(t)); return err }, model.CodeIllegalState},
	} {
		if err := c.do(); c.want == "" {
			check.Must(t, err)
		} else {
			check.Equal(t, name, model.CodeOf(err), c.want)
		}
	}
	check.Equal(t, "the payment that is under way", l.started(t, owned).ID, started.ID)
}

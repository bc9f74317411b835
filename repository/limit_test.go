package repository_test

import (
	"context"
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

// TestBuyersShareFewConnections: however much buyers write beside purchases, they are in few connections at once, and purchases have the rest.
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

// TestWhatChangesNothingWaitsForNoRow: what a buyer asks for in vain, or has already, is answered while the voucher's row, the order's and the
// place's are locked.
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

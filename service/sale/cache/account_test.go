package cache

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// register is a source of accounts that counts its questions.
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
	known, err := NewAccounts(AccountSource{ByID: source.ByID, Changed: source.Changed}, time.Hour, slog.New(slog.DiscardHandler))
	check.Must(t, err)
	return known
}

// pass lets time pass in the bubble of a test.
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
		if since := *oldest.Load(); time.Since(since) != time.Hour {
			t.Errorf("at first the changes since %s are read", time.Since(since))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			known.Watch(ctx)
		}()
		for version, ended := range map[int64]bool{0: true, 1: true, 2: true, 3: false, 4: false} {
			check.That(t, over(known, "early", version) == ended && !over(known, "other", version), "version %d of an account that is at 3: %v", version, !ended)
		}
		disabled := changedAt("late", 1, time.Now())
		disabled.Disabled = true
		list.Store(&[]model.Account{disabled})
		pass(time.Second)
		if !over(known, "late", 1) || !over(known, "late", 7) || !over(known, "early", 2) {
			t.Error("a second later a disabled account's token counts, or an earlier change is forgotten")
		}
		if since := *oldest.Load(); time.Since(since) > budget.Survey+2*time.Second || time.Since(since) < budget.Survey {
			t.Errorf("the changes of the last %s are read", time.Since(since))
		}
		// An older reading that comes late takes nothing back.
		list.Store(&[]model.Account{changedAt("early", 2, time.Now().Add(-40*time.Minute))})
		pass(time.Second)
		check.That(t, over(known, "early", 2), "an old change has overwritten a newer one")
		list.Store(&[]model.Account{})
		pass(2 * time.Hour)
		check.That(t, !over(known, "early", 1) && len(known.changed) == 0, "changes are remembered for ever")
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
			all[n] = changedAt(fmt.Sprint(n), 2, began.Add(time.Duration(n)))
		}
		return all, nil
	}}
	known := accountsOf(t, source)
	check.Must(t, known.Refresh(t.Context()))
	check.That(t, len(known.changed) <= maxChanges, "%d changes are remembered", len(known.changed))
	check.That(t, over(known, fmt.Sprint(maxChanges+9), 1) && !over(known, "0", 1), "the latest were to stay, and the oldest to go")
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
				if (err != nil) != (code != "") || err != nil && model.CodeOf(err) != code || got.Version != version2 || got.PasswordHash != "" {
					t.Errorf("%s: %+v, %v", id, got, err)
				}
			})
			if n := source.asked.Load() - before; n != asked {
				t.Errorf("%s: fifty requests asked %d times, want %d", id, n, asked)
			}
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

// over is what the changes say of a token.
func over(known *Accounts, id string, version int64) bool {
	ended, _ := known.Changed(id, version)
	return ended
}

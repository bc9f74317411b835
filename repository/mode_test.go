package repository_test

import (
	"regexp"
	"sync/atomic"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// mode checks how the database is sold from.
func (f *fixture) mode(t testing.TB, mode, switchingTo model.OrderMode) {
	t.Helper()
	got := check.Value(f.modes.Read(t.Context()))(t)
	if got.Mode != mode || got.SwitchingTo != switchingTo {
		t.Errorf("mode %+v, want %q, switching to %q", got, mode, switchingTo)
	}
}

// TestAdopt: an instance decides how a new database is sold from, and nobody
// does once there is a voucher.
func TestAdopt(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		f.mode(t, model.ModeSync, "")
		for _, mode := range []model.OrderMode{model.ModeAsync, model.ModeAsync, model.ModeSync, model.ModeAsync} {
			got := check.Value(f.modes.Adopt(t.Context(), mode))(t)
			if got.Mode != mode || !regexp.MustCompile(`^[a-z0-9]{16}$`).MatchString(got.Deployment) {
				t.Errorf("adopted %+v, want %s", got, mode)
			}
		}
		check.Must(t, f.modes.BeginSwitch(t.Context(), model.ModeSync))
		got := check.Value(f.modes.Adopt(t.Context(), model.ModeSync))(t)
		if got.Mode != model.ModeAsync || got.SwitchingTo != model.ModeSync {
			t.Errorf("adopted %+v in the middle of a switch", got)
		}
		check.Must(t, f.modes.FinishSwitch(t.Context(), model.ModeSync))
		f.onSale(t, 1)
		got = check.Value(f.modes.Adopt(t.Context(), model.ModeAsync))(t)
		check.Equal(t, "the mode adopted with a voucher", got.Mode, model.ModeSync)
		f.mode(t, model.ModeSync, "")
		wantCode(t, check.ErrorOf(f.modes.Adopt(t.Context(), "semisync")), model.CodeValidation)
	})
}

// TestAdoptAtOnce: instances of both modes and the first voucher at once. Once
// the voucher is there the mode is fixed.
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
			f.mode(t, got, "")
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

// TestSwitch steps through a switch, each step repeated.
func TestSwitch(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 1)
		wantCode(t, f.modes.FinishSwitch(t.Context(), model.ModeAsync), model.CodeConflict)
		for range 2 {
			check.Must(t, f.modes.BeginSwitch(t.Context(), model.ModeAsync))
			f.mode(t, model.ModeSync, model.ModeAsync)
		}
		wantCode(t, f.modes.BeginSwitch(t.Context(), model.ModeSync), model.CodeConflict)
		wantCode(t, f.modes.FinishSwitch(t.Context(), model.ModeSync), model.CodeConflict)
		// What was accepted before is still persisted while the switch drains.
		check.Must(t, f.place(t, order(t, v.ID, "alice")).Err)
		for range 2 {
			check.Must(t, f.modes.FinishSwitch(t.Context(), model.ModeAsync))
			f.mode(t, model.ModeAsync, "")
		}
		check.Must(t, f.modes.BeginSwitch(t.Context(), model.ModeAsync)) // that is how it is
		f.mode(t, model.ModeAsync, "")
		wantCode(t, f.modes.BeginSwitch(t.Context(), ""), model.CodeValidation)
		audit := check.Value(f.vouchers.Audit(t.Context(), v.ID))(t)
		check.Equal(t, "the mode that the audit names", audit.Mode, model.ModeAsync)
	})
}

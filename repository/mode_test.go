package repository_test

import (
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// mode checks how the database is sold from.
func (f *fixture) mode(t testing.TB, want model.OrderMode) {
	t.Helper()
	check.Equal(t, "the order mode", check.Value(f.modes.Read(t.Context()))(t).Mode, want)
}

// TestAdopt: an instance decides how a new database is sold from, and nobody
// does once there is a voucher.
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

// TestModeChange: also when it is repeated. A hot copy that was open is not afterwards, whenever its sale was: the voucher may be
// sold in the other mode and come back. One that was never made begins no epoch.
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

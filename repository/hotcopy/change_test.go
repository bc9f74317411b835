package hotcopy_test

import (
	"testing"
	"time"

	"seckill/model"
)

func TestApplyTakesOnlyNewerRevisions(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		apply := func(change func(*model.Voucher)) model.HotCopy {
			t.Helper()
			v := s.v
			change(&v)
			applied, err := s.copies.Apply(t.Context(), v)
			must(t, err)
			if !applied {
				t.Error("not applied")
			}
			return s.read()
		}
		before := s.read()
		after := apply(func(v *model.Voucher) {
			v.Revision, v.Stock, v.Price, v.State = 5, 20, 900, model.VoucherPaused
			v.BeginAt, v.EndAt = v.BeginAt.Add(time.Minute), v.EndAt.Add(time.Minute)
		})
		if v := after.Voucher; v.Revision != 5 || v.Stock != 20 || v.Remaining != 20 || v.Price != 900 || v.State != model.VoucherPaused ||
			!v.BeginAt.Equal(s.v.BeginAt.Add(time.Minute)) || !v.EndAt.Equal(s.v.EndAt.Add(time.Minute)) ||
			v.Phase != model.PhasePaused || v.Version == before.Voucher.Version || v.Currency != "CNY" {
			t.Errorf("reads %+v", v)
		}
		for _, revision := range []int64{4, 5} {
			late := apply(func(v *model.Voucher) { v.Revision, v.Stock = revision, 1 })
			if late.Voucher.Stock != 20 || late.Voucher.Version != after.Voucher.Version {
				t.Errorf("revision %d was applied after 5: %+v", revision, late.Voucher)
			}
		}
		s.shut()
		s.v.Revision = 6
		if applied, err := s.copies.Apply(t.Context(), s.v); applied || err != nil {
			t.Errorf("applied to a closed copy: %v, %v", applied, err)
		}
	})
}

func TestLowerNeverUndercutsWhatIsTaken(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		for i := range 4 {
			s.buy(user(i))
		}
		wantCode(t, s.copies.Lower(ctx, s.v.ID, 3, 2), model.CodeConflict)
		s.wants(model.CopyOpen, 6, 4, 4)
		must(t, s.copies.Lower(ctx, s.v.ID, 4, 2))
		must(t, s.copies.Lower(ctx, s.v.ID, 4, 2))
		s.wants(model.CopyOpen, 0, 4, 4)
		wantCode(t, s.admit(s.admission("eve")).Err, model.CodeSoldOut)

		stale := s.v // read before the intent, arrives after it
		stale.Revision = 2
		_, err := s.copies.Apply(ctx, stale)
		must(t, err)
		s.wants(model.CopyOpen, 0, 4, 4)
		must(t, s.copies.Lower(ctx, s.v.ID, 8, 2)) // no way up
		s.wants(model.CopyOpen, 0, 4, 4)
		dropped := s.v // the intent was given up
		dropped.Revision = 3
		_, err = s.copies.Apply(ctx, dropped)
		must(t, err)
		s.wants(model.CopyOpen, 6, 4, 4)
		wantErr(t, s.copies.Lower(ctx, s.v.ID, 5, 2), model.ErrSuperseded)
		s.shut()
		wantErr(t, s.copies.Lower(ctx, s.v.ID, 5, 9), model.ErrCopyClosed)
	})
}

package repository_test

import (
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestTagIsOfWhatAdministratorsChange, read from the database, and of nothing else.
func TestTagIsOfWhatAdministratorsChange(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		read := func() model.Voucher {
			t.Helper()
			now := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
			return now
		}
		if read().Tag() != v.Tag() {
			t.Errorf("made as %+v, read as %+v", v, read())
		}
		check.Must(t, f.place(t, order(t, v.ID, user(1))).Err)
		f.exec(t, "UPDATE vouchers SET revision = revision + 1, version = version + 1 WHERE id = ?", v.ID) // a rebuild does
		if now := read(); now.Tag() != v.Tag() || now.Version == v.Version {
			t.Errorf("a sale and a rebuild moved the tag of %+v", now)
		}
		title, number, state := "New", int64(77), model.VoucherPaused
		begin, end := v.BeginAt.Add(time.Microsecond), v.EndAt.Add(time.Microsecond)
		seen := map[string]bool{v.Tag(): true}
		for i, patch := range []model.VoucherPatch{
			{Title: &title}, {Description: &title}, {Price: &number}, {FaceValue: &number}, {BeginAt: &begin}, {EndAt: &end}, {State: &state},
		} {
			patched := check.Value(f.vouchers.Patch(t.Context(), v.ID, patch))(t)
			if seen[patched.Tag()] || patched.Tag() != read().Tag() {
				t.Errorf("patch %d: the tag is %s, read %s", i, patched.Tag(), read().Tag())
			}
			seen[patched.Tag()] = true
		}
		changed := check.Value(f.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Delta: new(int64(1))}, model.Idempotency{}))(t)
		if seen[changed.Tag()] || changed.Tag() != read().Tag() {
			t.Errorf("another stock left the tag %s, read %s", changed.Tag(), read().Tag())
		}
	})
}

// TestUnseenChangeIsNotOverwritten, in the same instant on two instances: of those who
// have seen one voucher, one changes it.
func TestUnseenChangeIsNotOverwritten(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.store, f.options)
		v := f.onSale(t, 100)
		for round, change := range []func(*fixture, int, model.Tags) (model.Voucher, error){
			func(f *fixture, i int, seen model.Tags) (model.Voucher, error) {
				return f.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{Price: new(int64(1000 + i)), IfMatch: seen})
			},
			func(f *fixture, i int, seen model.Tags) (model.Voucher, error) {
				return f.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Stock: new(int64(200 + i)), IfMatch: seen}, model.Idempotency{})
			},
		} {
			before := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
			var won atomic.Pointer[model.Voucher]
			check.Volley(10, func(i int) {
				changed, err := change([]*fixture{f, other}[i%2], i+1, model.Tags{"other", before.Tag()})
				switch {
				case err == nil:
					if !won.CompareAndSwap(nil, &changed) {
						t.Errorf("round %d: a second change was made", round)
					}
				case model.CodeOf(err) != model.CodePreconditionFailed:
					t.Errorf("round %d: %v", round, err)
				}
			})
			after := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
			if won.Load() == nil || after.Tag() != won.Load().Tag() || after.Version != before.Version+1 {
				t.Errorf("round %d: won %+v, read %+v", round, won.Load(), after)
			}
		}
		wantCode(t, check.ErrorOf(f.vouchers.Patch(t.Context(), "absent", model.VoucherPatch{IfMatch: model.Tags{"x"}})), model.CodeNotFound)
	})
}

// TestRepeatedCallIsNotRefusedByItsOwnChange: the tag is no part of what was asked.
func TestRepeatedCallIsNotRefusedByItsOwnChange(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		once := model.Idempotency{Scope: "s", Key: "k", Fingerprint: "f"}
		stale := model.StockChange{Delta: new(int64(1)), IfMatch: model.Tags{"stale"}}
		_, err := f.vouchers.ChangeStock(t.Context(), v.ID, stale, once)
		wantCode(t, err, model.CodePreconditionFailed) // which is no answer to be repeated
		for range 2 {
			seen := model.StockChange{Delta: new(int64(1)), IfMatch: model.Tags{v.Tag()}}
			if changed, err := f.vouchers.ChangeStock(t.Context(), v.ID, seen, once); err != nil || changed.Stock != 6 {
				t.Errorf("%+v, %v", changed, err)
			}
		}
	})
}

// TestStaleTagLowersNothing: in async mode the hot copy is not lowered for a change that
// is going to be refused.
func TestStaleTagLowersNothing(t *testing.T) {
	t.Parallel()
	overAsyncDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		for i, tag := range []string{"stale", v.Tag()} {
			change := model.StockChange{Stock: new(int64(3)), IfMatch: model.Tags{tag}}
			_, needed, err := f.vouchers.IntendStock(t.Context(), v.ID, change, model.Idempotency{})
			if err != nil || needed != (tag != "stale") || f.intents(t) != i {
				t.Errorf("%s: needed %v, %d intents, %v", tag, needed, f.intents(t), err)
			}
			_, err = f.vouchers.ChangeStock(t.Context(), v.ID, change, model.Idempotency{})
			if tag == "stale" {
				wantCode(t, err, model.CodePreconditionFailed)
			} else {
				check.Must(t, err)
			}
		}
	})
}

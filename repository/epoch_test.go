package repository_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"seckill/model"
)

func (f *fixture) record(t testing.TB, voucherID string) model.EpochRecord {
	t.Helper()
	all, err := f.copies.Read(t.Context(), []string{voucherID, "absent", "no id!"})
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("records %+v", all)
	}
	return all[voucherID]
}

func wantSuperseded(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, model.ErrSuperseded) {
		t.Errorf("error %v, want %v", err, model.ErrSuperseded)
	}
}

// TestCopyRecord steps through two rebuilds, and what each step does to the
// voucher's version and revision.
func TestCopyRecord(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		_, err := f.modes.Adopt(t.Context(), model.ModeAsync)
		must(t, err)
		v := f.onSale(t, 5)
		if r := f.record(t, v.ID); r.Open() || r.Epoch != 0 || r.Progress != nil || r.Barrier != nil || time.Since(r.Now).Abs() > time.Minute {
			t.Errorf("a new voucher: %+v", r)
		}
		before, err := f.vouchers.Get(t.Context(), v.ID)
		must(t, err)
		grown := func(what string, version, revision int64) {
			t.Helper()
			after, err := f.vouchers.Get(t.Context(), v.ID)
			must(t, err)
			if after.Version != before.Version+version || after.Revision != before.Revision+revision {
				t.Errorf("%s: version %d and revision %d after %d and %d", what, after.Version, after.Revision, before.Version, before.Revision)
			}
			before = after
		}
		closed, err := f.copies.Close(t.Context(), v.ID, 0)
		must(t, err)
		grown("close", 1, 1)
		if closed.Epoch != 1 || closed.OpenEpoch != 0 || closed.Barrier != nil || closed.Progress == nil || closed.Revision != before.Revision || closed.VoucherID != v.ID {
			t.Errorf("closed %+v", closed)
		}
		_, err = f.copies.Close(t.Context(), v.ID, 0)
		wantSuperseded(t, err)
		wantSuperseded(t, f.copies.SetBarrier(t.Context(), v.ID, 2, 9))
		must(t, f.copies.SetBarrier(t.Context(), v.ID, 1, 9))
		grown("barrier", 1, 1)
		if r := f.record(t, v.ID); r.Barrier == nil || *r.Barrier != 9 || r.Open() {
			t.Errorf("record %+v", r)
		}
		must(t, f.copies.Progress(t.Context(), v.ID, 1))
		grown("progress", 0, 0)
		if r := f.record(t, v.ID); !r.Progress.After(*closed.Progress) && f.store.dialect == "mysql" {
			t.Errorf("progress %s after %s", r.Progress, closed.Progress)
		}
		wantSuperseded(t, f.copies.Open(t.Context(), v.ID, 2))
		for range 2 { // the answer was lost
			must(t, f.copies.Open(t.Context(), v.ID, 1))
		}
		grown("open", 1, 0)
		if r := f.record(t, v.ID); !r.Open() || r.Barrier != nil {
			t.Errorf("open: %+v", r)
		}
		wantSuperseded(t, f.copies.SetBarrier(t.Context(), v.ID, 1, 10))
		wantSuperseded(t, f.copies.Progress(t.Context(), v.ID, 1))
		f.closed(t, v.ID, 3)
		if r := f.record(t, v.ID); r.Open() || r.Epoch != 2 || r.OpenEpoch != 1 {
			t.Errorf("closed again: %+v", r)
		}
		wantSuperseded(t, f.copies.Open(t.Context(), v.ID, 1))
		must(t, f.modes.BeginSwitch(t.Context(), model.ModeSync))
		wantCode(t, f.copies.Open(t.Context(), v.ID, 2), model.CodeUnavailable)
		must(t, f.modes.FinishSwitch(t.Context(), model.ModeSync))
		wantCode(t, f.copies.Open(t.Context(), v.ID, 2), model.CodeUnavailable)
		for _, call := range []func(id string) error{
			func(id string) error { _, err := f.copies.Close(t.Context(), id, 0); return err },
			func(id string) error { return f.copies.Progress(t.Context(), id, 1) },
		} {
			wantSuperseded(t, call("absent"))
			wantCode(t, call("no id!"), model.CodeNotFound)
		}
	})
}

// TestCloseAtOnce: of many who rebuild at once, one begins the next epoch.
func TestCloseAtOnce(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		var won atomic.Int32
		volley(8, func(int) {
			_, err := f.copies.Close(t.Context(), v.ID, 0)
			if err == nil {
				won.Add(1)
			} else {
				wantSuperseded(t, err)
			}
		})
		if won.Load() != 1 || f.record(t, v.ID).Epoch != 1 {
			t.Errorf("%d closed it", won.Load())
		}
	})
}

// TestWatched: which hot copies still matter, and which are held for open besides.
func TestWatched(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		_, err := f.modes.Adopt(t.Context(), model.ModeAsync)
		must(t, err)
		f.asIn(t, model.ModeAsync)
		over := func(ago time.Duration) model.Voucher {
			return f.voucher(t, model.NewVoucher{Stock: 5, State: model.VoucherDraft, BeginAt: time.Now().Add(-24 * time.Hour), EndAt: time.Now().Add(-ago)})
		}
		begins := func(in time.Duration) model.Voucher {
			return f.voucher(t, model.NewVoucher{Stock: 1, BeginAt: time.Now().Add(in), EndAt: time.Now().Add(100 * time.Hour)})
		}
		soon, later, onSale := begins(55*time.Minute), begins(65*time.Minute), f.onSale(t, 1)
		fresh, old, releasing, intended := over(55*time.Minute), over(65*time.Minute), over(10*time.Hour), over(10*time.Hour)
		f.persist(t, reservation(t, releasing.ID, "alice", 1, 1), reservation(t, releasing.ID, "alice", 1, 1))
		_, needed, err := f.vouchers.IntendStock(t.Context(), intended.ID, model.StockChange{Stock: new(int64(1))}, model.Idempotency{})
		must(t, err)
		list, err := f.copies.Watched(t.Context())
		must(t, err)
		watched := map[string]bool{}
		for _, r := range list {
			watched[r.VoucherID] = true
		}
		if len(list) != 4 || !needed || !watched[soon.ID] || !watched[fresh.ID] || !watched[intended.ID] {
			t.Errorf("watched %+v; not %s, %s, %s", list, later.ID, old.ID, releasing.ID)
		}
		if list[0].VoucherID != onSale.ID || !list[0].OnSale || list[1].OnSale || list[0].Version != 1 {
			t.Errorf("first: %+v, second: %+v", list[0], list[1])
		}
		_, err = f.copies.Close(t.Context(), old.ID, 0)
		must(t, err)
		must(t, f.copies.Open(t.Context(), old.ID, 1))
		over(10 * time.Hour) // never had a copy
		kept, err := f.copies.Kept(t.Context())
		must(t, err)
		if len(kept) != 7 || !slices.ContainsFunc(kept, func(r model.EpochRecord) bool { return r.VoucherID == old.ID && r.Open() }) {
			t.Errorf("kept %+v", kept)
		}
	})
}

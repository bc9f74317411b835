package repository_test

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func (f *fixture) record(t testing.TB, voucherID string) model.EpochRecord {
	t.Helper()
	all := check.Value(f.copies.Read(t.Context(), []string{voucherID, "absent", "no id!"}))(t)
	check.Need(t, len(all) == 1, "records %+v", all)
	return all[voucherID]
}

func wantSuperseded(t testing.TB, err error) {
	t.Helper()
	check.That(t, errors.Is(err, model.ErrSuperseded), "error %v, want %v", err, model.ErrSuperseded)
}

func TestCopyRecord(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		check.Must(t, check.ErrorOf(f.modes.Adopt(t.Context(), model.ModeAsync)))
		v := f.onSale(t, 5)
		if r := f.record(t, v.ID); r.Open() || r.Epoch != 0 || r.Progress != nil || r.Barrier != nil ||
			!aboutNow(r.Now) {
			t.Errorf("a new voucher: %+v", r)
		}
		before := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		grown := func(what string, version, revision int64) {
			t.Helper()
			after := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
			if after.Version != before.Version+version || after.Revision != before.Revision+revision {
				t.Errorf("%s: version %d and revision %d after %d and %d", what, after.Version, after.Revision,
					before.Version, before.Revision)
			}
			before = after
		}
		closed := check.Value(f.copies.Close(t.Context(), v.ID, 0, ""))(t)
		grown("close", 1, 1)
		check.That(t, closed.Epoch == 1 && closed.OpenEpoch == 0 && closed.Barrier == nil && closed.Progress != nil &&
			closed.Revision == before.Revision && closed.VoucherID == v.ID, "closed %+v", closed)
		wantSuperseded(t, check.ErrorOf(f.copies.Close(t.Context(), v.ID, 0, "")))
		wantSuperseded(t, f.copies.SetBarrier(t.Context(), v.ID, 2, 9))
		check.Must(t, f.copies.SetBarrier(t.Context(), v.ID, 1, 9))
		grown("barrier", 1, 1)
		if r := f.record(t, v.ID); r.Barrier == nil || *r.Barrier != 9 || r.Open() {
			t.Errorf("record %+v", r)
		}
		check.Must(t, f.copies.Progress(t.Context(), v.ID, 1))
		grown("progress", 0, 0)
		if r := f.record(t, v.ID); !r.Progress.After(*closed.Progress) && f.store.dialect == "mysql" {
			t.Errorf("progress %s after %s", r.Progress, closed.Progress)
		}
		wantSuperseded(t, f.copies.Open(t.Context(), v.ID, 2))
		for range 2 { // the answer was lost
			check.Must(t, f.copies.Open(t.Context(), v.ID, 1))
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
		f.switchTo(t, model.ModeSync)
		wantCode(t, f.copies.Open(t.Context(), v.ID, 2), model.CodeUnavailable)
		for _, call := range []func(id string) error{
			func(id string) error { _, err := f.copies.Close(t.Context(), id, 0, ""); return err },
			func(id string) error { return f.copies.Progress(t.Context(), id, 1) },
		} {
			wantSuperseded(t, call("absent"))
			wantCode(t, call("no id!"), model.CodeNotFound)
		}
	})
}

func TestLatest(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		check.Must(t, check.ErrorOf(f.modes.Adopt(t.Context(), model.ModeAsync)))
		fresh, closed := f.onSale(t, 1), f.onSale(t, 1)
		check.Must(t, check.ErrorOf(f.copies.Close(t.Context(), closed.ID, 0, "")))
		latest := check.Value(f.copies.Latest(t.Context(), []string{fresh.ID, "absent", closed.ID, "no id!"}))(t)
		check.That(t, maps.Equal(latest, map[string]int64{fresh.ID: 0, closed.ID: 1}),
			"the latest epochs are %v", latest)
		none := check.Value(f.copies.Latest(t.Context(), []string{"no id!"}))(t)
		check.That(t, len(none) == 0, "the latest epochs of nothing are %v", none)
	})
}

func TestCloseAtOnce(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		var won atomic.Int32
		check.Volley(8, func(int) {
			_, err := f.copies.Close(t.Context(), v.ID, 0, "")
			if err == nil {
				won.Add(1)
			} else {
				wantSuperseded(t, err)
			}
		})
		check.That(t, won.Load() == 1 && f.record(t, v.ID).Epoch == 1, "%d closed it", won.Load())
	})
}

func TestWatched(t *testing.T) {
	t.Parallel()
	overDialects(t, func(t *testing.T, f *fixture) {
		check.Must(t, check.ErrorOf(f.modes.Adopt(t.Context(), model.ModeAsync)))
		f.asIn(t, model.ModeAsync)
		over := func(ago time.Duration) model.Voucher {
			return f.voucher(t, model.VoucherFields{
				Stock: 5, State: model.VoucherDraft,
				BeginAt: time.Now().Add(-24 * time.Hour), EndAt: time.Now().Add(-ago),
			})
		}
		begins := func(in time.Duration) model.Voucher {
			return f.voucher(t, model.VoucherFields{
				Stock: 1, BeginAt: time.Now().Add(in),
				EndAt: time.Now().Add(100 * time.Hour),
			})
		}
		soon, later, onSale := begins(55*time.Minute), begins(65*time.Minute), f.onSale(t, 1)
		fresh, old, releasing, intended := over(55*time.Minute), over(65*time.Minute), over(10*time.Hour),
			over(10*time.Hour)
		f.persist(t, reservation(t, releasing.ID, "alice", 1, 1), reservation(t, releasing.ID, "alice", 1, 1))
		_, needed, err := f.vouchers.IntendStock(t.Context(), intended.ID, model.StockChange{Stock: new(int64(1))},
			model.Idempotency{})
		check.Must(t, err)
		list := check.Value(f.copies.Watched(t.Context()))(t)
		watched := map[string]bool{}
		for _, r := range list {
			watched[r.VoucherID] = true
		}
		check.That(t, len(list) == 4 && needed && watched[soon.ID] && watched[fresh.ID] && watched[intended.ID],
			"watched %+v; not %s, %s, %s", list, later.ID, old.ID, releasing.ID)
		check.That(t, list[0].VoucherID == onSale.ID && list[0].OnSale && !list[1].OnSale && list[0].Version == 1,
			"first: %+v, second: %+v", list[0], list[1])
		check.Must(t, check.ErrorOf(f.copies.Close(t.Context(), old.ID, 0, "")))
		check.Must(t, f.copies.Open(t.Context(), old.ID, 1))
		over(10 * time.Hour)              // never had a copy
		abandoned := over(10 * time.Hour) // its rebuild died
		f.closedFrom(t, abandoned.ID, 0, 7)
		kept := check.Value(f.copies.Kept(t.Context()))(t)
		if len(kept) != 8 || !slices.ContainsFunc(kept,
			func(r model.EpochRecord) bool { return r.VoucherID == old.ID && r.Open() }) ||
			!slices.ContainsFunc(kept, func(r model.EpochRecord) bool {
				return r.VoucherID == abandoned.ID &&
					r.Barrier != nil
			}) {
			t.Errorf("kept %+v", kept)
		}
	})
}

// TestSnapshot shows one instant, whatever is committed while it is read, and keeps no other call from writing.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	overAsync(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 10)
		f.opened(t, v.ID)
		f.onSale(t, 10)
		before := []model.Reservation{
			reservation(t, v.ID, "alice", 1, 1), reservation(t, v.ID, "bob", 1, 1), reservation(t, v.ID, "bob", 1, 1),
		}
		f.persist(t, before...)
		f.closed(t, v.ID, 1)
		check.Must(t, f.copies.Snapshot(t.Context(), v.ID, 2, func(s model.Snapshot) error {
			later := reservation(t, v.ID, "carol", 2, 2)
			f.persist(t, later)
			f.cancels(t, "alice", before[0].ID)
			check.Must(t, check.ErrorOf(f.vouchers.ChangeStock(t.Context(), v.ID,
				model.StockChange{Delta: new(int64(10))}, model.Idempotency{})))
			if got := s.Voucher; got.Stock != 10 || got.Remaining != 8 || got.Price != v.Price ||
				got.Phase != model.PhaseLive {
				t.Errorf("voucher %+v", got)
			}
			live := map[string]string{}
			check.Must(t, s.Live(t.Context(), func(some []model.Order) error {
				for _, o := range some {
					live[o.UserID] = o.ID
					check.That(t, o.VoucherID == v.ID, "order %+v", o)
				}
				return nil
			}))
			check.That(t, len(live) == 2 && live["alice"] == before[0].ID && live["bob"] == before[1].ID,
				"live %v", live)
			rows := check.Value(f.orders.Find(t.Context(),
				[]string{before[0].ID, before[2].ID, later.ID, "absent", "no id!"}))(t)
			check.Equal(t, "rows, also of orders that are not live or not in the snapshot", len(rows), 3)
			return nil
		}))
		stop := errors.New("enough")
		if err := f.copies.Snapshot(t.Context(), v.ID, 2, func(s model.Snapshot) error {
			return s.Live(t.Context(), func([]model.Order) error { return stop })
		}); !errors.Is(err, stop) || model.CodeOf(err) != model.CodeInternal {
			t.Errorf("error %v, want the caller's own", err)
		}
		unused := func(model.Snapshot) error { t.Error("shown"); return nil }
		wantSuperseded(t, f.copies.Snapshot(t.Context(), v.ID, 1, unused))
		wantCode(t, f.copies.Snapshot(t.Context(), "absent", 1, unused), model.CodeNotFound)
		wantCode(t, f.copies.Snapshot(t.Context(), "no id!", 1, unused), model.CodeNotFound)
		f.balanced(t, v.ID, 2)
	})
}

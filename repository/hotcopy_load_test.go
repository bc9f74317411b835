package repository_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/model"
)

func z(at time.Time, id string) redis.Z { return redis.Z{Score: float64(at.UnixMilli()), Member: id} }

func TestAMissingCopyIsClosedNotSoldOut(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		r := s.buy("bob")
		for _, noun := range []string{"buyers", "pending", "due", "closed", "head"} {
			must(t, s.client.Copy(ctx, s.keyOf(noun), s.keyOf("saved"), 0, true).Err())
			must(t, s.client.Del(ctx, s.keyOf(noun)).Err())
			wantErr(t, s.admit(s.admission("eve")).Err, model.ErrCopyClosed)
			if got := s.read(); got.State != model.CopyClosed || got.Voucher.Remaining != 0 && noun != "head" || got.Voucher.ServerTime.IsZero() {
				t.Errorf("without %s it reads %+v", noun, got)
			}
			if applied, err := s.copies.Release(ctx, releaseOf(r)); applied || err != nil {
				t.Errorf("without %s: released %v, %v", noun, applied, err)
			}
			_, _, err := s.copies.Pending(ctx, "unknown."+s.v.ID)
			wantErr(t, err, model.ErrCopyClosed)
			_, err = s.copies.Due(ctx, s.v.ID, 0, 1)
			wantErr(t, err, model.ErrCopyClosed)
			must(t, s.client.Rename(ctx, s.keyOf("saved"), s.keyOf(noun)).Err())
		}
		s.wants(model.CopyOpen, 9, 1, 1)
	})
}

func (s *sale) keyOf(noun string) string {
	if noun == "head" {
		return s.head()
	}
	return s.key(noun)
}

func TestRebuildCarriesWhatIsGiven(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		s.v.Stock = 5000
		old := s.buy("old")
		var marks []model.Release
		var pending []model.Reservation
		for i := range 1701 {
			r := model.Reservation{Epoch: 1, Order: model.Order{
				ID: fmt.Sprintf("%d.%s", i, s.v.ID), VoucherID: s.v.ID, UserID: user(i), Status: model.OrderProcessing,
				Price: 1000, Currency: "CNY", CreatedAt: old.CreatedAt,
			}}
			if marks = append(marks, releaseOf(r)); i%2 == 0 {
				pending = append(pending, r)
			}
		}
		stale := s.copies
		s.rebuild(2, 1, marks, pending)
		s.wants(model.CopyOpen, 5000-1701, 851, 1701)
		got := make(map[string]string)
		must(t, s.copies.Marks(ctx, s.v.ID, 2, func(userID, orderID string) error { got[userID] = orderID; return nil }))
		want := make(map[string]string)
		for _, m := range marks {
			want[m.UserID] = m.OrderID
		}
		if !maps.Equal(got, want) {
			t.Errorf("%d marks are not those loaded", len(got))
		}
		count := 0
		must(t, s.copies.Buyers(ctx, s.v.ID, func(userID string) error { count++; delete(want, userID); return nil }))
		if len(want) != 0 || count < len(marks) {
			t.Errorf("%d buyers were not told of", len(want))
		}
		carried := make(map[string]model.Reservation)
		must(t, s.copies.Pendings(ctx, s.v.ID, 2, func(r model.Reservation) error { carried[r.ID] = r; return nil }))
		for _, r := range pending {
			if carried[r.ID] != r {
				t.Fatalf("carried %+v, want %+v", carried[r.ID], r)
			}
		}
		if due, err := s.copies.Due(ctx, s.v.ID, 0, 2000); err != nil || len(due) == 0 {
			t.Errorf("%d due, %v", len(due), err)
		}
		// Who reserves again what was carried publishes it in the new epoch.
		again, err := stale.Reserve(ctx, []model.Admission{{OrderID: pending[0].ID, VoucherID: s.v.ID, UserID: pending[0].UserID}})
		must(t, err)
		if again[0].Err != nil || again[0].Epoch != 2 || !again[0].CreatedAt.Equal(old.CreatedAt) {
			t.Errorf("reserved again %+v", again[0])
		}
		// The old epoch's entries can still be read, and are no truth any more.
		found := 0
		must(t, s.copies.Pendings(ctx, s.v.ID, 1, func(model.Reservation) error { found++; return nil }))
		must(t, s.copies.Pendings(ctx, s.v.ID, 99, func(model.Reservation) error { found++; return nil }))
		if _, ok, err := s.copies.Pending(ctx, old.ID); found != 1 || ok || err != nil {
			t.Errorf("%d old entries, found %v, %v", found, ok, err)
		}
	})
}

func TestConfirmAsksForTheOpenEpoch(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		r := s.buy("bob")
		nowhere := model.Reservation{Order: model.Order{VoucherID: "missing" + s.v.ID}, Epoch: 1}
		confirm := func(want bool) {
			t.Helper()
			got, err := s.copies.Confirm(t.Context(), []model.Reservation{r, nowhere, r})
			must(t, err)
			if len(got) != 3 || got[0] != want || got[2] != want || got[1] {
				t.Errorf("confirmed %v, want %v", got, want)
			}
		}
		confirm(true)
		must(t, s.copies.Invalidate(t.Context(), s.v.ID, 2)) // another epoch
		confirm(true)
		must(t, s.copies.Invalidate(t.Context(), s.v.ID, 1))
		confirm(false)
		s.rebuild(2, 1, nil, nil)
		confirm(false)
		r = s.buy("bob")
		confirm(true)
	})
}

func TestOpenIsACompareAndSet(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		mark := []model.Release{releaseOf(s.buy("bob"))}
		open := func(epoch int64, marks, pending int) error { return s.copies.Open(ctx, s.v, epoch, marks, pending, 1) }

		must(t, open(1, 0, 0)) // it is open: a repetition
		wantErr(t, open(2, 0, 0), model.ErrSuperseded)
		wantErr(t, s.copies.Close(ctx, s.v.ID, 1), model.ErrSuperseded)
		wantErr(t, s.copies.Rebuilding(ctx, s.v.ID, 1), model.ErrSuperseded)
		wantErr(t, s.copies.Load(ctx, s.v.ID, 1, nil, nil), model.ErrSuperseded)
		s.wants(model.CopyOpen, 9, 1, 1)

		must(t, s.copies.Invalidate(ctx, s.v.ID, 1))
		wantErr(t, open(1, 1, 1), model.ErrSuperseded) // late: it was found wrong since
		must(t, s.copies.Close(ctx, s.v.ID, 3))
		must(t, s.copies.Close(ctx, s.v.ID, 3))
		wantErr(t, s.copies.Close(ctx, s.v.ID, 2), model.ErrSuperseded)
		wantErr(t, s.copies.Rebuilding(ctx, s.v.ID, 2), model.ErrSuperseded)
		must(t, s.copies.Rebuilding(ctx, s.v.ID, 3))
		if got := s.read(); got.State != model.CopyRebuilding || got.Epoch != 3 {
			t.Errorf("reads %+v", got)
		}
		wantErr(t, open(3, 0, 0), model.ErrSuperseded) // nothing is loaded, not even that
		wantErr(t, s.copies.Load(ctx, s.v.ID, 2, mark, nil), model.ErrSuperseded)
		must(t, s.copies.Load(ctx, s.v.ID, 3, mark, nil))
		must(t, s.copies.Load(ctx, s.v.ID, 3, mark, nil)) // the same
		wantErr(t, open(3, 0, 0), model.ErrSuperseded)
		wantErr(t, open(3, 1, 1), model.ErrSuperseded)
		wantErr(t, s.admit(s.admission("eve")).Err, model.ErrCopyClosed)
		must(t, open(3, 1, 0))
		s.wants(model.CopyOpen, 9, 0, 1)
	})
}

func TestKeysExpireSomeTimeAfterTheSale(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		const week, slack = 7 * 24 * time.Hour, 5 * time.Minute
		expires := func(key string, want time.Duration) {
			t.Helper()
			if ttl := s.client.PTTL(t.Context(), key).Val(); (ttl - want).Abs() > slack {
				t.Errorf("%s expires in %s, want %s", key, ttl, want)
			}
		}
		all := func(want time.Duration) {
			t.Helper()
			for _, noun := range []string{"head", "buyers", "pending", "due", "closed"} {
				expires(s.keyOf(noun), want)
			}
		}
		all(week + time.Hour)
		s.v.Revision, s.v.EndAt = 2, time.Now().Add(30*24*time.Hour)
		_, err := s.copies.Apply(t.Context(), s.v)
		must(t, err)
		all(week + 30*24*time.Hour)
		s.v.EndAt = time.Now().Add(-365 * 24 * time.Hour)
		old := s.key("buyers")
		must(t, s.copies.Close(t.Context(), s.v.ID, 2))
		must(t, s.copies.Load(t.Context(), s.v.ID, 2, nil, nil))
		s.epoch = 2
		expires(s.key("buyers"), time.Hour) // a load that may be given up
		must(t, s.copies.Open(t.Context(), s.v, 2, 0, 0, 1))
		all(week)
		expires(old, time.Hour)
	})
}

// Nobody repairs a copy that a rebuild cannot: it takes the place of whatever lies
// there.
func TestARebuildOverridesWhateverLiesThere(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		for _, name := range []string{"head", "buyers", "pending", "epoch"} {
			key := s.head()
			if name == "buyers" || name == "pending" {
				key = s.key(name)
			}
			if name == "epoch" {
				must(t, s.client.HSet(ctx, key, "epoch", "abc").Err())
			} else {
				must(t, s.client.Set(ctx, key, "text", 0).Err())
			}
			if got := s.read(); got.State != model.CopyClosed {
				t.Errorf("%s: it is read as %+v", name, got)
			}
			must(t, s.copies.Pendings(ctx, s.v.ID, s.epoch, func(model.Reservation) error { return nil }))
			s.rebuild(s.epoch+1, s.epoch, nil, nil)
			s.buy("eve")
			s.wants(model.CopyOpen, 9, 1, 1)
		}
	})
}

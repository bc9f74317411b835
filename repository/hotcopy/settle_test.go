package hotcopy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestReleaseIsTheInverseOfReserve(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		s.buy("eve")
		was, before := s.content(), s.read()
		a := s.admission("bob")
		r := s.admit(a).Reservation
		s.release(r)
		check.Equal(t, "the copy", s.content(), was)
		if after := s.read(); after.Voucher.Version == before.Voucher.Version {
			t.Error("the version is as it was before")
		}
		s.release(r)
		check.Is(t, "the answer", s.admit(a).Err, model.ErrOrderClosed)
		again := s.buy("bob")
		s.release(r) // another order of the same user
		if is, _, err := s.copies.OrderOf(t.Context(), s.v.ID, "bob"); err != nil || is != again.ID {
			t.Errorf("bob has order %q, %v; want %s", is, err, again.ID)
		}
		s.wants(model.CopyOpen, 8, 2, 2)
	})
}

func TestReleaseOfASettledOrder(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		r := s.buy("bob")
		check.Must(t, s.copies.Settle(t.Context(), []model.Order{r.Order}))
		check.Must(t, s.copies.Settle(t.Context(), []model.Order{r.Order, r.Order, {ID: "x." + s.v.ID, VoucherID: s.v.ID}}))
		check.Must(t, s.copies.Settle(t.Context(), []model.Order{{ID: "", VoucherID: s.v.ID}})) // names the sentinel
		if _, err := s.copies.Release(t.Context(), model.Release{VoucherID: s.v.ID}); err == nil {
			t.Error("released nothing of nobody")
		}
		s.wants(model.CopyOpen, 9, 0, 1)
		if _, ok, err := s.copies.Pending(t.Context(), r.ID); ok || err != nil {
			t.Errorf("still pending, or %v", err)
		}
		s.release(r)
		s.wants(model.CopyOpen, 10, 0, 0)
	})
}

// However many units come back at once, each is given back once: a mark that is another order of the same user stays.
func TestReleaseOfManyOrders(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		const many = 7
		var back []model.Release
		for i := range many {
			r := s.buy(fmt.Sprint("user", i))
			if i%2 == 0 {
				check.Must(t, s.copies.Settle(t.Context(), []model.Order{r.Order}))
			}
			back = append(back, releaseOf(r))
		}
		s.wants(model.CopyOpen, 10-many, many/2, many)
		back = append(back, model.Release{OrderID: "older." + s.v.ID, VoucherID: s.v.ID, UserID: "user0"})
		if applied, err := s.copies.ReleaseAll(t.Context(), s.v.ID, back[1:]); !applied || err != nil {
			t.Errorf("applied %v, %v", applied, err)
		}
		s.wants(model.CopyOpen, 9, 0, 1)
		again := s.buy("user1")
		for range 2 {
			if applied, err := s.copies.ReleaseAll(t.Context(), s.v.ID, back); !applied || err != nil {
				t.Errorf("again: applied %v, %v", applied, err)
			}
			if is, _, err := s.copies.OrderOf(t.Context(), s.v.ID, "user1"); err != nil || is != again.ID {
				t.Errorf("user1 has order %q, %v; want %s", is, err, again.ID)
			}
		}
		s.wants(model.CopyOpen, 9, 1, 1)
		if _, err := s.copies.ReleaseAll(t.Context(), s.v.ID, append(back, model.Release{})); err == nil {
			t.Error("released nothing of nobody")
		}
	})
}

func TestReleaseMeetsAClosedCopyLater(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		r, ctx := s.buy("bob"), t.Context()
		was := s.content()
		later := func(when string) {
			t.Helper()
			if applied, err := s.copies.Release(ctx, releaseOf(r)); applied || err != nil {
				t.Errorf("%s: applied %v, %v", when, applied, err)
			}
			check.Must(t, s.copies.Settle(ctx, []model.Order{r.Order}))
			check.Equal(t, when+": the copy", s.content(), was)
		}
		check.Must(t, s.copies.Close(ctx, s.record(2, 1)))
		later("closed")
		check.Must(t, s.copies.Load(ctx, s.record(2, 0), nil, nil))
		check.Must(t, s.copies.Load(ctx, s.record(2, 0), nil, []model.Reservation{r}))
		later("being loaded")
		check.Must(t, s.copies.Open(ctx, s.record(2, 1), s.v, 0))
		s.epoch = 2
		s.release(r)
		s.wants(model.CopyOpen, 10, 0, 0)
	})
}

func TestDueByRedisClockAndTouch(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx := t.Context()
		first, second := s.buy("bob"), s.buy("eve")
		due := func(olderThan time.Duration, limit int) (ids []string) {
			t.Helper()
			all := check.Value(s.copies.Due(ctx, s.v.ID, olderThan, limit))(t)
			for _, r := range all {
				ids = append(ids, r.ID)
			}
			return ids
		}
		if got := due(0, 10); len(got) != 2 {
			t.Errorf("due %v", got)
		}
		if got := due(time.Minute, 10); len(got) != 0 {
			t.Errorf("due after a minute: %v", got)
		}
		for _, id := range []string{first.ID, second.ID} {
			s.age(id)
		}
		if got := due(time.Minute, 1); len(got) != 1 {
			t.Errorf("due, at most one: %v", got)
		}
		settled := s.buy("zoe")
		check.Must(t, s.copies.Settle(ctx, []model.Order{settled.Order}))
		published := first
		published.Epoch = 5
		check.Must(t, s.copies.Touch(ctx, []model.Reservation{published, settled}))
		if got := due(time.Minute, 10); !slices.Equal(got, []string{second.ID}) {
			t.Errorf("due after one was published again: %v, want %s", got, second.ID)
		}
		// A rebuild may have given the entry another epoch since it was read.
		if pending, _, err := s.copies.Pending(ctx, first.ID); err != nil || pending != first {
			t.Errorf("pending %+v, %v; want %+v", pending, err, first)
		}
		s.wants(model.CopyOpen, 7, 2, 3)
	})
}

func TestWatchTellsWhatIsSettled(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		ctx, cancel := context.WithCancel(t.Context())
		told, ready := make(chan string, 1000), make(chan struct{}, 10)
		var wg sync.WaitGroup
		wg.Go(func() {
			s.copies.Watch(ctx, func(ids []string) {
				for _, id := range ids {
					if strings.HasSuffix(id, s.v.ID) { // and not of other tests
						told <- id
					}
				}
			}, func() { ready <- struct{}{} })
		})
		defer wg.Wait()
		defer cancel()
		<-ready
		wait := func(id string) {
			t.Helper()
			for check.Receive(t, "the settling of "+id, told) != id {
				continue // of one that was told before
			}
		}
		var orders []model.Order
		for i := range 250 {
			orders = append(orders, model.Order{ID: fmt.Sprintf("%d.%s", i, s.v.ID), VoucherID: s.v.ID})
		}
		check.Must(t, s.copies.Settle(ctx, orders))
		wait(orders[0].ID)
		wait(orders[249].ID)
		r := s.buy("bob")
		s.release(r)
		wait(r.ID)
		s.shut()
		check.Must(t, s.copies.Settle(ctx, []model.Order{{ID: "closed." + s.v.ID, VoucherID: s.v.ID}}))
		wait("closed." + s.v.ID)
		check.Must(t, s.copies.Settle(ctx, []model.Order{{ID: "x.missing" + s.v.ID, VoucherID: "missing" + s.v.ID}}))
		wait("x.missing" + s.v.ID)
	})
}

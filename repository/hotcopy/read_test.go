package hotcopy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// Orders that are processing are listed newest first, page by page, and each of
// them once.
func TestProcessingOrdersArePaged(t *testing.T) {
	t.Parallel()
	overCopies(t, func(t *testing.T, s *sale) {
		var want []string
		for i := range 7 {
			r := s.buy(fmt.Sprintf("user-%d", i))
			if i == 3 {
				check.Must(t, s.copies.Settle(t.Context(), s.v.ID, []model.Order{r.Order}))
				continue
			}
			want = append(want, r.ID)
		}
		slices.Reverse(want)
		var got []string
		for q := (model.OrderQuery{VoucherID: s.v.ID, Limit: 4}); ; {
			page := check.Value(s.copies.Processing(t.Context(), q))(t)
			for _, o := range page.Items {
				got = append(got, o.ID)
				if o.Status != model.OrderProcessing || o.UserID == "" || o.Price != s.v.Price || o.CreatedAt.IsZero() {
					t.Errorf("%+v", o)
				}
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("listed %v, want %v", got, want)
		}
		got = nil
		check.Must(t, s.copies.EachProcessing(t.Context(), s.v.ID, func(o model.Order) error { got = append(got, o.ID); return nil }))
		if !slices.Equal(got, want) {
			t.Errorf("yielded %v, want %v", got, want)
		}
		wantCode(t, check.ErrorOf(s.copies.Processing(t.Context(), model.OrderQuery{VoucherID: s.v.ID, Cursor: "nonsense"})), model.CodeValidation)
		s.shut()
		wantErr(t, check.ErrorOf(s.copies.Processing(t.Context(), model.OrderQuery{VoucherID: s.v.ID})), model.ErrCopyClosed)
		wantErr(t, s.copies.EachProcessing(t.Context(), s.v.ID, nil), model.ErrCopyClosed)
	})
}

// All orders that are processing cost Redis one scan: page by page they would cost
// one for each page.
func TestAllProcessingOrdersAreReadOnce(t *testing.T) {
	t.Parallel()
	s, _ := ownSale(t, "--appendonly", "no")
	const orders = 20_000
	var carried []model.Reservation
	for i := range orders {
		carried = append(carried, model.Reservation{Order: model.Order{
			ID: fmt.Sprintf("%d.%s", i, s.v.ID), UserID: user(i), Currency: "CNY", CreatedAt: time.UnixMicro(int64(i)),
		}})
	}
	s.rebuild(2, 1, nil, carried)
	check.Must(t, s.client.ConfigResetStat(t.Context()).Err())
	last, seen := orders, 0
	check.Must(t, s.copies.EachProcessing(t.Context(), s.v.ID, func(o model.Order) error {
		if at := int(o.CreatedAt.UnixMicro()); at != last-1 {
			t.Fatalf("order %d follows %d", at, last)
		}
		last--
		seen++
		return nil
	}))
	check.Equal(t, "orders seen", seen, orders)
	var calls int
	_, stats, _ := strings.Cut(s.client.Info(t.Context(), "commandstats").Val(), "cmdstat_hscan:calls=")
	if _, err := fmt.Sscan(strings.Replace(stats, ",", " ", 1), &calls); err != nil || calls > 3*orders/1000 {
		t.Errorf("%d scans, %v", calls, err)
	}
}

// Whatever Redis forgets changes its incarnation, and nothing else does.
func TestIncarnation(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSale(t, server.URL(), hotcopy.Options{}, 10)
	seen := ""
	for _, loss := range []func(){
		func() {},
		func() { check.Must(t, s.client.FlushAll(t.Context()).Err()) },
		func() { server.Kill(); server.Start() },
		func() { // demoted and promoted again: its run id is the same
			check.Must(t, s.client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
			check.Must(t, s.client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
		},
	} {
		loss()
		now := check.Value(s.copies.Incarnation(t.Context()))(t)
		again, err := s.copies.Incarnation(t.Context())
		if check.Must(t, err); now == seen || again != now {
			t.Errorf("before %q, now %q, again %q", seen, now, again)
		}
		seen = now
	}
}

// A copy is quiet when it is there, in the epoch asked for, and has nothing reserved.
func TestQuiet(t *testing.T) {
	t.Parallel()
	overCopies(t, func(t *testing.T, s *sale) {
		quiet := func() []bool {
			return s.copies.Quiet(t.Context(), []model.EpochRecord{
				s.record(s.epoch, 0), s.record(s.epoch+1, 0), {VoucherID: newID(t), Epoch: 1, Shards: s.shards},
			})
		}
		if got := quiet(); !slices.Equal(got, []bool{true, false, false}) {
			t.Errorf("%v", got)
		}
		_, err := s.copies.Reserve(t.Context(), []model.ReserveRequest{{OrderID: model.OrderID(newID(t), s.v.ID), VoucherID: s.v.ID, UserID: "u"}})
		if check.Must(t, err); quiet()[0] {
			t.Error("something is reserved")
		}
	})
}

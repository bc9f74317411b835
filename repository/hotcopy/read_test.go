package hotcopy_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

// Orders that are processing are listed newest first, page by page, and each of them once.
func TestProcessingOrdersArePaged(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		var want []string
		for i := range 7 {
			r := s.buy(fmt.Sprintf("user-%d", i))
			if i == 3 {
				check.Must(t, s.copies.Settle(t.Context(), []model.Order{r.Order}))
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
		check.Is(t, "the answer", check.ErrorOf(s.copies.Processing(t.Context(), model.OrderQuery{VoucherID: s.v.ID})), model.ErrCopyClosed)
		check.Is(t, "the answer", s.copies.EachProcessing(t.Context(), s.v.ID, nil), model.ErrCopyClosed)
	})
}

// All orders that are processing cost Redis one scan: page by page they would cost one for each page.
func TestAllProcessingOrdersAreReadOnce(t *testing.T) {
	t.Parallel()
	s := newSale(t, testserver.SharedRedis(t), hotcopy.Options{}, 10)
	const orders = 5000
	var carried []model.Reservation
	for i := range orders {
		carried = append(carried, model.Reservation{Order: model.Order{
			ID: fmt.Sprintf("%d.%s", i, s.v.ID), UserID: user(i), Currency: "CNY", CreatedAt: time.UnixMicro(int64(i)),
		}})
	}
	s.rebuild(2, 1, nil, carried)
	scans := 0
	s.client.AddHook(onCommand(func(cmd redis.Cmder) {
		if cmd.Name() == "hscan" {
			scans++
		}
	}))
	last := orders
	check.Must(t, s.copies.EachProcessing(t.Context(), s.v.ID, func(o model.Order) error {
		last--
		check.Equal(t, "the order that follows", int(o.CreatedAt.UnixMicro()), last)
		return nil
	}))
	check.Equal(t, "orders not seen", last, 0)
	if scans == 0 || scans > 3*orders/1000 {
		t.Errorf("%d scans", scans)
	}
}

// onCommand is told of each command that is sent by itself.
type onCommand func(redis.Cmder)

// DialHook implements redis.Hook.
func (onCommand) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (onCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (h onCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h(cmd)
		return next(ctx, cmd)
	}
}

// A copy is quiet when it is there, in the epoch asked for, has nothing reserved, and knows as many buyers as the
// database.
func TestQuiet(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		quiet := func() []bool {
			return s.copies.Quiet(t.Context(), []model.EpochRecord{
				s.record(s.epoch, 0), s.record(s.epoch+1, 0), {VoucherID: newID(t), Epoch: 1},
			})
		}
		if got := quiet(); !slices.Equal(got, []bool{true, false, false}) {
			t.Errorf("%v", got)
		}
		sold := s.record(s.epoch, 0)
		sold.Taken = 1
		check.Equal(t, "quiet, and one order is not marked", s.copies.Quiet(t.Context(), []model.EpochRecord{sold})[0], false)
		_, err := s.copies.Reserve(t.Context(), []model.ReserveRequest{{OrderID: model.OrderID(newID(t), s.v.ID), VoucherID: s.v.ID, UserID: "u"}})
		if check.Must(t, err); quiet()[0] {
			t.Error("something is reserved")
		}
	})
}

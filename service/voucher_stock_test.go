package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"seckill/model"
)

// shelfSide is the store of the vouchers themselves.
type shelfSide struct {
	VoucherStore // of the rest nothing is called

	*stage
}

func (v shelfSide) Create(context.Context, string, model.NewVoucher, model.Idempotency) (model.Voucher, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.record = model.EpochRecord{VoucherID: "v1"}
	return v.voucher, nil
}

func (v shelfSide) Patch(_ context.Context, _ string, patch model.VoucherPatch) (model.Voucher, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.voucher.Price = *patch.Price
	v.voucher.Revision++
	return v.voucher, nil
}

func (v shelfSide) ChangeStock(_ context.Context, _ string, change model.StockChange, _ model.Idempotency) (model.Voucher, error) {
	if err := v.step("db.changestock"); err != nil {
		return model.Voucher{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	difference := *change.Stock - v.voucher.Stock
	if v.voucher.Remaining+difference < 0 {
		return model.Voucher{}, model.Conflict("More is sold.")
	}
	v.voucher.Stock += difference
	v.voucher.Remaining += difference
	v.voucher.Revision++
	v.intents = nil
	return v.voucher, nil
}

// Announce implements Announcer.
func (v shelfSide) Announce(context.Context, string) error { return nil }

func (s *stage) vouchers(t *testing.T) *Vouchers {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	db := newTable()
	copies := newCache(t, db)
	t.Cleanup(func() { copies.Close(context.Background()) })
	return NewVouchers(shelfSide{stage: s}, copies, shelfSide{stage: s}, quiet).Asynchronously(NewHotStock(HotStockDeps{
		Intents: intentSide{s}, Vouchers: dbSide{s}, Copies: hotSide{s}, Rebuilds: s.rebuild, Auditor: s.auditor(), Log: quiet,
	}))
}

func to(stock int64) model.StockChange { return model.StockChange{Stock: &stock} }

func TestANewVoucherIsLoadedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.lose()
		s.publish(s.rows2()) // the queue is busy with other vouchers, which is none of its business
		draft := model.NewVoucher{Title: "x", Stock: 10, BeginAt: time.Now(), EndAt: time.Now().Add(time.Hour)}
		if _, err := s.vouchers(t).Create(t.Context(), draft, model.Idempotency{}); err != nil {
			t.Fatal(err)
		}
		if s.hot.State != model.CopyOpen || s.hot.Epoch != 1 || s.remaining() != 10 {
			t.Errorf("%+v", s.hot)
		}
	})
}

// rows2 is a reservation of another voucher.
func (s *stage) rows2() model.Reservation {
	return model.Reservation{Order: model.Order{ID: "o.v2", VoucherID: "v2", UserID: "u"}, Epoch: 1}
}

func TestANewVoucherIsAnsweredAlthoughItsCopyCannotBeLoaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.lose()
		s.fail("hot.close", errors.New("away"))
		vouchers := s.vouchers(t)
		draft := model.NewVoucher{Title: "x", Stock: 10, BeginAt: time.Now(), EndAt: time.Now().Add(time.Hour)}
		if _, err := vouchers.Create(t.Context(), draft, model.Idempotency{}); err != nil {
			t.Error(err)
		}
		s.on = map[string]func() error{}
		s.reconcileFor(t, 15*time.Second)
		s.balanced(t)
	})
}

func TestChangesReachTheCopyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		vouchers := s.vouchers(t)
		price := int64(777)
		if _, err := vouchers.Patch(t.Context(), "v1", model.VoucherPatch{Price: &price}); err != nil || s.hot.Voucher.Price != 777 {
			t.Errorf("%v, price %d", err, s.hot.Voucher.Price)
		}
		if _, err := vouchers.ChangeStock(t.Context(), "v1", to(20), model.Idempotency{}); err != nil || s.remaining() != 20 {
			t.Errorf("%v, %d remain", err, s.remaining())
		}
		s.fail("hot.apply", errors.New("away"))
		if _, err := vouchers.ChangeStock(t.Context(), "v1", to(30), model.Idempotency{}); err != nil {
			t.Errorf("the change is committed: %v", err)
		}
	})
}

// The copy promises before the database knows: a smaller stock must not undercut
// what is reserved.
func TestStockShrinksInTheCopyFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		for i := range 6 {
			s.admit(fmt.Sprint("o", i), fmt.Sprint("u", i))
		}
		vouchers := s.vouchers(t)
		_, err := vouchers.ChangeStock(t.Context(), "v1", to(5), model.Idempotency{})
		if model.CodeOf(err) != model.CodeConflict || s.voucher.Stock != 10 || s.hot.Voucher.Stock != 10 || len(s.intents) != 0 {
			t.Errorf("below what is reserved: %v, %d in the database, %d in the copy", err, s.voucher.Stock, s.hot.Voucher.Stock)
		}
		if s.count("db.changestock") != 0 {
			t.Error("the database was changed first")
		}
		if _, err = vouchers.ChangeStock(t.Context(), "v1", to(6), model.Idempotency{}); err != nil || s.remaining() != 0 || s.voucher.Stock != 6 {
			t.Errorf("%v, %d remain, stock %d", err, s.remaining(), s.voucher.Stock)
		}
	})
}

func TestAStockThatCannotShrinkLeavesTheCopyAsItWas(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"hot.lower", "db.changestock"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.fail(at, model.Unavailable("away", nil))
				_, err := s.vouchers(t).ChangeStock(t.Context(), "v1", to(5), model.Idempotency{})
				if model.CodeOf(err) != model.CodeUnavailable || s.hot.Voucher.Stock != 10 || len(s.intents) != 0 {
					t.Errorf("%v, the copy has %d, %d intents", err, s.hot.Voucher.Stock, len(s.intents))
				}
			})
		})
	}
	s := newStage(t)
	s.hot.State = model.CopyClosed
	if _, err := s.vouchers(t).ChangeStock(t.Context(), "v1", to(5), model.Idempotency{}); model.CodeOf(err) != model.CodeUnavailable {
		t.Errorf("a closed copy: %v", err)
	}
}

func TestRebuildEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		vouchers := s.vouchers(t)
		if err := vouchers.Rebuild(t.Context(), "v1"); err != nil || s.hot.State == model.CopyOpen {
			t.Errorf("%v, the copy is %s", err, s.hot.State)
		}
		s.serveRebuilds(t.Context())
		s.balanced(t)
		if err := vouchers.Rebuild(t.Context(), "no/voucher"); model.CodeOf(err) != model.CodeNotFound {
			t.Error(err)
		}
		vouchers.hot = nil
		if err := vouchers.Rebuild(t.Context(), "v1"); model.CodeOf(err) != model.CodeConflict {
			t.Error(err)
		}
	})
}

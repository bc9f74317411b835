package cache

import (
	"errors"
	"testing"
	"time"

	"github.com/bits-and-blooms/bloom/v3"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// sale is an entry of a sale of which nothing is left and whose buyers are known. It was asked for and told within 20
// ms, in which the database read it at an instant of its clock.
func sale(begin, end, database time.Time) *entry {
	asked := time.Now()
	return &entry{
		asked: asked, told: asked.Add(20 * time.Millisecond), buyers: &buyers{filter: bloom.NewWithEstimates(1, falseBuyers)},
		voucher: model.Voucher{
			VoucherFields: model.VoucherFields{State: model.VoucherPublished, BeginAt: begin, EndAt: end, Stock: 1},
			VoucherView:   model.VoucherView{ServerTime: database},
		},
	}
}

// At the edges of the window only the seller decides, whatever else an entry could tell: a sale that has ended has
// ended, and is not sold out.
func TestNothingIsToldAtTheEdges(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 11, 10, 0, 0, 0, time.UTC)
	end := begin.Add(time.Minute)
	for name, tt := range map[string]struct {
		database time.Time
		edge     bool
	}{
		"the opening edge": {begin.Add(-10 * time.Millisecond), true},
		"the middle":       {begin.Add(time.Second), false},
		"the closing edge": {end.Add(-10 * time.Millisecond), true},
	} {
		held := sale(begin, end, tt.database)
		err := held.refusal("anybody", held.told)
		if soldOut := err != nil && model.CodeOf(err) == model.CodeSoldOut; soldOut == tt.edge || tt.edge && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		held.closed = true
		if err := held.refusal("anybody", held.told); errors.Is(err, model.ErrCopyClosed) == tt.edge || tt.edge && err != nil {
			t.Errorf("%s, closed: %v", name, err)
		}
	}
}

// Of a closed hot copy nobody is told that it is sold out, and nobody is sent to ask it.
func TestAClosedCopyIsToldFromMemory(t *testing.T) {
	t.Parallel()
	now := time.Now()
	held := sale(now.Add(-time.Hour), now.Add(time.Hour), now)
	held.closed = true
	for _, left := range []int64{0, 1} {
		held.voucher.Remaining = left
		check.Is(t, "a closed copy", held.refusal("anybody", held.told), model.ErrCopyClosed)
	}
}

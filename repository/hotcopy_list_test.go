package repository_test

import (
	"fmt"
	"slices"
	"testing"

	"seckill/model"
)

// Orders that are processing are listed newest first, page by page, and each of
// them once.
func TestProcessingOrdersArePaged(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		var want []string
		for i := range 7 {
			r := s.buy(fmt.Sprintf("user-%d", i))
			if i == 3 {
				must(t, s.copies.Settle(t.Context(), s.v.ID, []string{r.ID}))
				continue
			}
			want = append(want, r.ID)
		}
		slices.Reverse(want)
		var got []string
		for q := (model.OrderQuery{VoucherID: s.v.ID, Limit: 4}); ; {
			page, err := s.copies.Processing(t.Context(), q)
			must(t, err)
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
		must(t, s.copies.EachProcessing(t.Context(), s.v.ID, func(o model.Order) error { got = append(got, o.ID); return nil }))
		if !slices.Equal(got, want) {
			t.Errorf("yielded %v, want %v", got, want)
		}
		_, err := s.copies.Processing(t.Context(), model.OrderQuery{VoucherID: s.v.ID, Cursor: "nonsense"})
		wantCode(t, err, model.CodeValidation)
		s.shut()
		_, err = s.copies.Processing(t.Context(), model.OrderQuery{VoucherID: s.v.ID})
		wantErr(t, err, model.ErrCopyClosed)
		wantErr(t, s.copies.EachProcessing(t.Context(), s.v.ID, nil), model.ErrCopyClosed)
	})
}

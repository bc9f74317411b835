package hotcopy_test

import (
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestTouchRevivesNothing: an order that was settled while its message was published again is not looked at any more. Were
// it noted as published, it would stand before others for ever.
func TestTouchRevivesNothing(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		settled, pending := s.buy("bob"), s.buy("zoe")
		check.Must(t, s.copies.Settle(t.Context(), []model.Order{settled.Order}))
		check.Must(t, s.copies.Touch(t.Context(), []model.Reservation{settled, pending}))
		due := check.Value(s.copies.Due(t.Context(), s.v.ID, 0, 10))(t)
		if len(due) != 1 || due[0].ID != pending.ID {
			t.Errorf("due: %+v, want order %s alone", due, pending.ID)
		}
		if s.client == nil {
			return
		}
		if err := s.client.ZScore(t.Context(), s.key("due"), settled.ID).Err(); err == nil {
			t.Error("the settled order is listed")
		}
	})
}

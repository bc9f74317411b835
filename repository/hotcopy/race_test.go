package hotcopy_test

import (
	"errors"
	"testing"

	"seckill/internal/testserver"
	"seckill/model"
	"seckill/repository/hotcopy"
)

func TestReserveRace(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		codes := make(map[model.Code]int)
		all := make([]model.ReserveRequest, 500)
		for i := range all {
			all[i] = s.admission(user(i % 250)) // each user twice
		}
		s.crowd(all, func(a model.ReserveResult) {
			if a.Err == nil {
				codes[""]++
			} else {
				codes[model.CodeOf(a.Err)]++
			}
		})
		// Who comes when all is sold hears so, unless he is a buyer.
		if codes[""] != 10 || codes[model.CodeAlreadyOrdered] != 10 || codes[model.CodeSoldOut] != 480 {
			t.Errorf("answers %v", codes)
		}
		s.wants(model.CopyOpen, 0, 10, 10)
	})
}

func TestReserveRaceOfOneUser(t *testing.T) {
	t.Parallel()
	overRedis(t, func(t *testing.T, s *sale) {
		won, others := "", make(map[string]int)
		all := make([]model.ReserveRequest, 500)
		for i := range all {
			all[i] = s.admission("bob")
		}
		s.crowd(all, func(a model.ReserveResult) {
			refusal, _ := errors.AsType[*model.Error](a.Err)
			switch {
			case a.Err == nil && won == "":
				won = a.ID
			case refusal != nil && refusal.Code == model.CodeAlreadyOrdered:
				others[refusal.OrderID]++
			default:
				t.Errorf("answer %+v", a)
			}
		})
		if won == "" || others[won] != 499 {
			t.Errorf("order %s won, the others heard of %v", won, others)
		}
		s.wants(model.CopyOpen, 9, 1, 1)
	})
}

// Two instances that reserve and release at once never take more than there is,
// and leave nothing behind.
func TestReserveRaceWithReleases(t *testing.T) {
	t.Parallel()
	s := newSale(t, testserver.SharedRedis(t), hotcopy.Options{}, 10)
	second := hotcopy.New(s.client, hotcopy.Options{})
	volley(100, func(i int) {
		for range 20 {
			a := s.admission(user(i))
			answers, err := second.Reserve(t.Context(), []model.ReserveRequest{a})
			if err != nil {
				t.Error(err)
				return
			}
			if answers[0].Err != nil {
				wantCode(t, answers[0].Err, model.CodeSoldOut)
				continue
			}
			if got := s.read(); got.Buyers > 10 || got.Buyers < 1 {
				t.Errorf("%d buyers of 10 units", got.Buyers)
			}
			s.release(answers[0].Reservation)
		}
	})
	s.wants(model.CopyOpen, 10, 0, 0)
}

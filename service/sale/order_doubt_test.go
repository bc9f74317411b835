package sale

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// One order of a call may be in doubt where the others are not, as when one node of a Cluster does not answer. Its buyer
// hears that it is not known yet, and nothing is undone.
func TestOneReservationInDoubt(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.hot.Answer = func(a model.ReserveRequest) *model.ReserveResult {
			if a.UserID == "alice" {
				return &model.ReserveResult{Err: fmt.Errorf("reserve: %w", model.ErrUnknownOutcome)}
			}
			return nil
		}
		check.Is(t, "alice", s.unavailable(t, "alice"), model.ErrUnknownOutcome)
		check.Equal(t, "unknown orders counted", servicetest.Counted(t, s.metrics, "seckill_orders_unknown_total"), 1)
		check.Equal(t, "releases", s.hot.Calls("Release"), 0)
		s.buys(t, "bob")
	})
}

// While new orders are refused for the backlog, only a live order is an answer: the mark of a closed one may still be there,
// and its buyer comes again like everybody else.
func TestAClosedOrderIsNoAnswerDuringABacklog(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		for user, status := range map[string]model.OrderStatus{"alice": model.OrderCanceled, "bob": model.OrderUnpaid} {
			placed := s.buys(t, user)
			row := s.persist(s.sale.Pending()[placed.ID])
			row.Status = status
			s.rows.put(row)
		}
		s.line.with(func() { s.line.backlog.Age = time.Hour })
		<-time.After(backlogEvery + time.Millisecond)
		synctest.Wait()
		s.refused(t, "alice", model.CodeUnavailable)
		check.Equal(t, "where bob's order stands", s.refused(t, "bob", model.CodeAlreadyOrdered).OrderStatus, model.OrderUnpaid)
	})
}

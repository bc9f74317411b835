package repository_test

import (
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// TestOnlyReturnedUnitsGoToTheHotCopy: of orders that move in one transaction, those that keep their units write no
// release, and only the others' units are on sale again.
func TestOnlyReturnedUnitsGoToTheHotCopy(t *testing.T) {
	t.Parallel()
	over(t, dialects(), newAsync, func(t *testing.T, f *fixture) {
		l := lifeOf(f)
		v := l.onSale(t, 2)
		kept, returned := l.bought(t, v.ID, "alice"), l.bought(t, v.ID, "bob")
		moved := check.Value(repository.MoveTogether(t.Context(), l.db, []model.Order{kept, returned},
			[]model.OrderStatus{model.OrderPaid, model.OrderCanceled}, []model.Mover{model.MoverProvider, model.MoverBuyer}))(t)
		if moved[0].Status != model.OrderPaid || moved[1].Status != model.OrderCanceled {
			t.Errorf("moved %+v", moved)
		}
		list := check.Value(l.releases.After(t.Context(), model.Release{}, 10))(t)
		if len(list) != 1 || list[0].OrderID != returned.ID {
			t.Errorf("the outbox has %+v, want order %s alone", list, returned.ID)
		}
		l.balanced(t, v.ID, 1)
	})
}

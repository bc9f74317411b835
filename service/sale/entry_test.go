package sale

import (
	"context"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// urn is a store of entries.
type urn struct {
	entered []model.Entering
	during  func()
}

func (u *urn) Enter(_ context.Context, asked []model.Entering) ([]model.Entered, error) {
	if u.during != nil {
		u.during()
	}
	u.entered = append(u.entered, asked...)
	answers := make([]model.Entered, len(asked))
	for i, one := range asked {
		answers[i].Entry = model.Entry{VoucherID: one.VoucherID, Nonce: one.UserID}
	}
	return answers, nil
}

// In either order mode an entry is decided under the user's lock, and takes no unit, asks no hot copy and queues nothing.
func TestAnEntryAsksTheDatabaseAlone(t *testing.T) {
	t.Parallel()
	enters := func(t *testing.T, orders *Orders, table *servicetest.Table, keys *servicetest.Locks) *urn {
		t.Helper()
		u := &urn{during: func() { check.Equal(t, "the lock is held", keys.Holds("alice"), true) }}
		orders.entries.deps.Entries = u
		table.With(func(t *servicetest.Table) { t.Voucher.Allocation = model.ByDraw })
		order := check.Value(orders.Place(t.Context(), "alice", table.Voucher.ID))(t)
		check.That(t, order.ID == "" && order.Entry != nil && order.Entry.Nonce == "alice", "%+v", order)
		check.Equal(t, "locks given back", keys.Released.Load(), keys.Taken.Load())
		check.Equal(t, "entries", len(u.entered), 1)
		return u
	}
	inShop(t, func(t *testing.T, s shop) {
		enters(t, s.Orders, s.table, s.keys)
		check.Equal(t, "transactions of orders", s.desk.calls.Load(), 0)
	})
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.sale.Set("state", model.CopyClosed)
		enters(t, s.Orders, s.table, s.keys)
		check.Equal(t, "reservations", s.hot.Calls("Reserve"), 0)
		check.Equal(t, "rebuilds asked for", s.doctor.requests.Load(), 0)
	})
}

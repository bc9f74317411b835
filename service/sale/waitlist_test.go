package sale

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service/servicetest"
)

// waitlist is one whose voucher has units in the database until an instant.
type waitlist struct {
	PlaceStore // of the rest nothing is called

	free  time.Time
	calls atomic.Int64
	given atomic.Int64
	held  chan struct{} // until it is closed no place is given up
}

func (p *waitlist) Place(_ context.Context, _, userID string) (place model.WaitlistPlace, err error) {
	if userID == "nobody" {
		err = model.NotFound("place")
	}
	return place, err
}

func (p *waitlist) Leave(_ context.Context, _ string, users []string) ([]error, error) {
	if users[0] == "nobody" { // who has no place, and is told so without the row
		return []error{model.NotFound("place")}, nil
	}
	p.calls.Add(1)
	<-p.held
	return make([]error, len(users)), nil
}

func (p *waitlist) Join(_ context.Context, _ string, asked []model.Joining) ([]model.Joined, error) {
	p.calls.Add(1)
	<-time.After(servicetest.QueryTime)
	joined := make([]model.Joined, len(asked))
	for i := range asked {
		if time.Now().Before(p.free) {
			joined[i].Err = model.UnitsFree()
			continue
		}
		joined[i] = model.Joined{Created: true, Place: model.WaitlistPlace{Position: p.given.Add(1)}}
	}
	return joined, nil
}

// While units remain in the database and none in the hot copy, orders are on their way: who has heard SOLD_OUT gets a
// place behind them.
func TestJoin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(v *model.Voucher)
		user   string
		free   time.Duration // for so long units remain in the database
		want   model.Code
		again  bool // it was asked more than once
		closed bool // the hot copy was closed a moment ago
		stock  int  // the hot copy got more units
	}{
		"the last orders are on their way": {free: 500 * time.Millisecond, again: true},
		"a long queue":                     {free: time.Hour, want: model.CodeUnavailable, again: true},
		"units are free":                   {free: time.Hour, stock: 2, want: model.CodeConflict},
		"an order of one's own":            {free: time.Hour, user: "alice", want: model.CodeAlreadyOrdered},
		"no waitlist":                      {change: func(v *model.Voucher) { v.Waitlist = false }, want: model.CodeConflict},
		"paused":                           {change: func(v *model.Voucher) { v.State = model.VoucherPaused }, want: model.CodePaused},
		"over":                             {change: func(v *model.Voucher) { v.EndAt = time.Now() }, want: model.CodeEnded},
		"not for this user":                {change: func(v *model.Voucher) { v.Groups = model.Groups{"gold"} }, want: model.CodeNotEligible},
		"nothing in the way":               {},
		"the hot copy is closed":           {free: time.Hour, closed: true, want: model.CodeUnavailable},
	} {
		servicetest.Bubble(t, name, func(t *testing.T) {
			list := &waitlist{}
			s := newHotShop(t, func(d *Deps, _ *AsyncDeps) { d.Places = list })
			s.sale.Change(func(v *model.Voucher) { v.Stock, v.Waitlist = 1, true })
			s.buys(t, "alice")
			s.refused(t, "bob", model.CodeSoldOut)
			if c.change != nil {
				s.sale.Change(c.change)
				s.cache.Drop("v1")
			}
			if c.stock > 0 {
				s.sale.Set("stock", c.stock)
				s.cache.Drop("v1")
			}
			if c.closed {
				s.table.Change(func(v *model.Voucher) { v.Waitlist = true })
				s.sale.Set("state", model.CopyClosed)
				check.Is(t, "what is known of the units", check.ErrorOf(s.cache.Remaining(t.Context(), "v1")), model.ErrCopyClosed)
			}
			list.free = time.Now().Add(c.free)
			user := c.user
			if user == "" {
				user = "bob"
			}
			place, created, err := s.Join(t.Context(), user, "v1")
			if c.want != "" {
				check.Equal(t, "the answer", model.CodeOf(err), c.want)
			} else {
				check.That(t, err == nil && created && place.Position == 1, "%+v, %v, %v", place, created, err)
			}
			check.Equal(t, "asked again", list.calls.Load() > 1, c.again)
		})
	}
}

// In the order mode sync the database alone decides, and a crowd shares its transactions.
func TestJoinsShareTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		list := &waitlist{}
		s.table.Change(func(v *model.Voucher) { v.Waitlist, v.Remaining = true, 0 })
		s.joins = newJoins(list)
		const crowd = 400
		var all sync.WaitGroup
		for n := range crowd {
			all.Go(func() {
				_, created, err := s.Join(t.Context(), fmt.Sprint("user", n), "v1")
				check.That(t, created && err == nil, "%v %v", created, err)
			})
		}
		all.Wait()
		check.That(t, list.calls.Load() <= 3, "%d transactions", list.calls.Load())
		list.free = time.Now().Add(time.Hour)
		_, _, err := s.Join(t.Context(), "bob", "v1")
		check.Equal(t, "while units remain", model.CodeOf(err), model.CodeConflict)
	})
}

// While the voucher's row is locked, those who leave are in one transaction of each instance and of the buyers' share,
// and who has no place is told at once.
func TestLeavesShareTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShop(t)
		list := &waitlist{held: make(chan struct{})}
		s.deps.Places, s.leaves = list, newLeaves(list)
		var all sync.WaitGroup
		for n := range 400 {
			all.Go(func() { check.Must(t, s.Leave(t.Context(), fmt.Sprint("user", n), "v1")) })
		}
		synctest.Wait()
		check.Equal(t, "transactions while the row is locked", list.calls.Load(), 1)
		servicetest.WantCode(t, s.Leave(t.Context(), "nobody", "v1"), model.CodeNotFound)
		close(list.held)
		all.Wait()
		check.That(t, list.calls.Load() <= 3, "%d transactions", list.calls.Load())
	})
}

// newRelayingShop counts how often the outbox is asked.
func newRelayingShop(t *testing.T) (hotShop, *int) {
	t.Helper()
	relayed := new(int)
	return newHotShop(t, func(_ *Deps, a *AsyncDeps) {
		a.Relay = func(context.Context, string) error {
			*relayed++
			return nil
		}
	}), relayed
}

// What a canceled order of a voucher with a waitlist gives back comes before the answer: by the outbox, where the call
// does not know the heir, and also where this instance does not know the waitlist.
func TestCancelRelaysWhereUsersWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, relayed := newRelayingShop(t)
		s.sale.Set("stock", 1)
		placed := s.buys(t, "alice")
		s.persist(s.sale.Pending()[placed.ID])
		s.refused(t, "bob", model.CodeSoldOut)
		s.sale.Change(func(v *model.Voucher) { v.Waitlist = true })
		s.cancels(t, "alice", placed.ID)
		check.Equal(t, "relays", *relayed, 1)
		check.Equal(t, "the mark that the outbox takes away", s.sale.Marks()["alice"], placed.ID)
		check.Equal(t, "rows that it has not applied", len(s.rows.noted), 0)

		// Who asks again is not told of the closed order.
		_, err := s.Place(t.Context(), "alice", "v1")
		check.Equal(t, "while the mark is there", model.CodeOf(err), model.CodeUnavailable)
		check.That(t, *relayed > 1, "the outbox was not asked")
	})
}

// A call that knows the heir tells the hot copy, whatever the database does meanwhile.
func TestCancelTellsTheHeir(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, relayed := newRelayingShop(t)
		s.sale.Change(func(v *model.Voucher) { v.Stock, v.Waitlist = 1, true })
		placed := s.buys(t, "alice")
		s.persist(s.sale.Pending()[placed.ID])
		s.rows.heir = &model.Order{ID: "heir.v1", UserID: "bob"}
		s.cancels(t, "alice", placed.ID)
		check.Equal(t, "the mark", s.sale.Marks()["bob"], "heir.v1")
		check.Equal(t, "rows that it has applied", len(s.rows.noted), 1)
		check.Equal(t, "relays", *relayed, 0)
		s.cancels(t, "alice", placed.ID)
		check.Equal(t, "relays of a call that does not know the heir", *relayed, 1)
	})
}

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

// In either order mode an entry is decided under the user's lock, and takes no unit, asks no hot copy and queues
// nothing.
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

package sale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/internal/telemetry"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository/hotcopy/hotcopytest"
	"seckill/service/backlog"
	"seckill/service/sale/cache"
	"seckill/service/servicetest"
)

// waitlist has units in the database until an instant.
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

// Units left in the database mean orders on their way: who got SOLD_OUT from the copy gets a place behind them.
func TestJoin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want   model.Code
		change func(v *model.Voucher)
		free   time.Duration // for so long units remain in the database
		user   string        // empty: bob, who has heard SOLD_OUT
		again  bool          // it was asked more than once
		stock  int           // the hot copy got more units
	}{
		"orders under way":   {free: 500 * time.Millisecond, again: true},
		"a long queue":       {want: model.CodeUnavailable, free: time.Hour, again: true},
		"units are free":     {want: model.CodeConflict, free: time.Hour, stock: 2},
		"an own order":       {want: model.CodeAlreadyOrdered, free: time.Hour, user: "alice"},
		"no waitlist":        {want: model.CodeConflict, change: func(v *model.Voucher) { v.Waitlist = false }},
		"paused":             {want: model.CodePaused, change: func(v *model.Voucher) { v.State = model.VoucherPaused }},
		"over":               {want: model.CodeEnded, change: func(v *model.Voucher) { v.EndAt = time.Now() }},
		"not eligible":       {want: model.CodeNotEligible, change: func(v *model.Voucher) { v.Groups = model.Groups{"x"} }},
		"nothing in the way": {},
	} {
		inHotShops(t, name, func(t *testing.T, s hotShop) {
			s.sale.Change(func(v *model.Voucher) { v.Stock, v.Waitlist = 1, true })
			s.buys(t, "alice")
			s.refused(t, "bob", model.CodeSoldOut)
			if c.change != nil {
				s.sale.Change(c.change)
			}
			if c.stock > 0 {
				s.sale.Set("stock", c.stock)
			}
			s.cache.Drop("v1")
			s.places.free = time.Now().Add(c.free)
			place, created, err := s.Join(t.Context(), cmp.Or(c.user, "bob"), "v1")
			servicetest.Hears(t, "who joins", err, c.want)
			check.That(t, err != nil || created && place.Position == 1, "%+v, %v", place, created)
			check.Equal(t, "asked again", s.places.calls.Load() > 1, c.again)
		})
	}
	inHotShops(t, "the hot copy was closed a moment ago", func(t *testing.T, s hotShop) {
		s.sale.Change(func(v *model.Voucher) { v.Waitlist = true })
		s.buys(t, "alice")
		s.places.free = time.Now().Add(time.Hour)
		s.sale.Set("state", model.CopyClosed)
		_, err := s.cache.Remaining(t.Context(), "v1")
		check.Is(t, "what is known of the units", err, model.ErrCopyClosed)
		servicetest.Hears(t, "the caller", errorOf3(s.Join(t.Context(), "bob", "v1")), model.CodeUnavailable)
	})
}

// In the order mode sync the database alone decides, and a crowd shares its transactions.
func TestJoinsShareTransactions(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.table.Change(func(v *model.Voucher) { v.Waitlist, v.Remaining = true, 0 })
		check.Volley(400, func(n int) {
			_, created, err := s.Join(t.Context(), fmt.Sprint("user", n), "v1")
			check.That(t, created && err == nil, "%v %v", created, err)
		})
		check.That(t, s.places.calls.Load() <= 3, "%d transactions", s.places.calls.Load())
		s.places.free = time.Now().Add(time.Hour)
		servicetest.Hears(t, "the caller", errorOf3(s.Join(t.Context(), "bob", "v1")), model.CodeConflict)
	})
}

// Leaves share one transaction in each instance, and who has no place gets the answer at once.
func TestLeavesShareTransactions(t *testing.T) {
	t.Parallel()
	inShop(t, func(t *testing.T, s shop) {
		s.places.held = make(chan struct{})
		var all sync.WaitGroup
		for n := range 400 {
			all.Go(func() { check.Must(t, s.Leave(t.Context(), fmt.Sprint("user", n), "v1")) })
		}
		synctest.Wait()
		check.Equal(t, "transactions while the row is locked", s.places.calls.Load(), 1)
		servicetest.Hears(t, "the caller", s.Leave(t.Context(), "nobody", "v1"), model.CodeNotFound)
		close(s.places.held)
		all.Wait()
		check.That(t, s.places.calls.Load() <= 3, "%d transactions", s.places.calls.Load())
	})
}

// A returned unit of a waitlist goes by the outbox, before the answer, where no heir or no waitlist is known here.
func TestCancelRelaysWhereUsersWait(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.sale.Set("stock", 1)
		placed := s.persist(t, "alice")
		s.refused(t, "bob", model.CodeSoldOut)
		s.sale.Change(func(v *model.Voucher) { v.Waitlist = true })
		s.cancels(t, "alice", placed.ID)
		check.Equal(t, "relays", s.doctor.relayed, 1)
		check.Equal(t, "the mark that the outbox takes away", s.sale.Marks()["alice"], placed.ID)
		check.Equal(t, "rows that it has not applied", len(s.rows.noted), 0)

		s.refused(t, "alice", model.CodeUnavailable) // and is not told of the closed order
		check.That(t, s.doctor.relayed > 1, "the outbox was not asked")
	})
}

func TestCancelTellsTheHeir(t *testing.T) {
	t.Parallel()
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.sale.Change(func(v *model.Voucher) { v.Stock, v.Waitlist = 1, true })
		placed := s.persist(t, "alice")
		s.rows.heir = &model.Order{ID: "heir.v1", UserID: "bob"}
		s.cancels(t, "alice", placed.ID)
		check.Equal(t, "the mark", s.sale.Marks()["bob"], "heir.v1")
		check.Equal(t, "rows that it has applied", len(s.rows.noted), 1)
		check.Equal(t, "relays", s.doctor.relayed, 0)
		s.cancels(t, "alice", placed.ID)
		check.Equal(t, "relays of a call that does not know the heir", s.doctor.relayed, 1)
	})
}

type urn struct {
	entered int
	during  func()
}

func (u *urn) Enter(_ context.Context, asked []model.Entering) ([]model.Entered, error) {
	u.during()
	u.entered += len(asked)
	answers := make([]model.Entered, len(asked))
	for i, one := range asked {
		answers[i].Entry = model.Entry{VoucherID: one.VoucherID, Nonce: one.UserID}
	}
	return answers, nil
}

// In either order mode an entry is decided under the user's lock; it takes no unit, asks no hot copy, queues nothing.
func TestAnEntryAsksTheDatabaseAlone(t *testing.T) {
	t.Parallel()
	enters := func(t *testing.T, s shop) {
		t.Helper()
		s.urn.during = func() { check.Equal(t, "the lock is held", s.keys.Holds("alice"), true) }
		s.table.With(func(t *servicetest.Table) { t.Voucher.Allocation = model.ByDraw })
		order := check.Value(s.Place(t.Context(), "alice", "v1"))(t)
		check.That(t, order.ID == "" && order.Entry != nil && order.Entry.Nonce == "alice", "%+v", order)
		check.Equal(t, "locks given back", s.keys.Released.Load(), s.keys.Taken.Load())
		check.Equal(t, "entries", s.urn.entered, 1)
	}
	inShop(t, func(t *testing.T, s shop) {
		enters(t, s)
		check.Equal(t, "transactions of orders", s.desk.calls.Load(), 0)
	})
	inHotShop(t, func(t *testing.T, s hotShop) {
		s.sale.Set("state", model.CopyClosed)
		enters(t, s.shop)
		check.Equal(t, "reservations", s.hot.Calls("reserve"), 0)
		check.Equal(t, "rebuilds asked for", s.doctor.requests.Load(), 0)
	})
}

type desk struct {
	OrderStore // of the rest nothing is called

	table  *servicetest.Table
	took   time.Duration // of one transaction
	waited time.Duration // for the voucher's row
	err    error
	during func(orders []model.Order) // a transaction
	calls  atomic.Int64
	orders atomic.Int64
}

func (d *desk) CreateOrders(ctx context.Context, orders []model.Order) ([]model.Outcome, error) {
	if len(orders) == 0 {
		return nil, nil
	}
	d.calls.Add(1)
	select {
	case <-time.After(d.took):
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", model.ErrUnknownOutcome, ctx.Err())
	}
	if d.during != nil {
		d.during(orders)
	}
	if d.err != nil {
		return nil, d.err
	}
	outcomes := make([]model.Outcome, len(orders))
	d.table.With(func(t *servicetest.Table) {
		for i, order := range orders {
			outcomes[i] = d.create(t, order)
		}
	})
	return outcomes, nil
}

func (d *desk) create(t *servicetest.Table, order model.Order) model.Outcome {
	if t.Voucher.State == model.VoucherPaused {
		return model.Outcome{Err: &model.Error{Code: model.CodePaused}}
	}
	if t.Voucher.Remaining == 0 {
		return model.Outcome{Err: model.SoldOut()}
	}
	t.Voucher.Remaining--
	t.Voucher.Version++ // only what changes the row does: see repository.Vouchers
	t.Users = append(t.Users, order.UserID)
	d.orders.Add(1)
	order.Status = model.OrderUnpaid
	return model.Outcome{Order: order, Created: true, Waited: d.waited}
}

type shop struct {
	*Orders

	table   *servicetest.Table
	desk    *desk
	keys    *servicetest.Locks
	places  *waitlist
	urn     *urn
	cache   *cache.Vouchers
	metrics *prometheus.Registry
}

func over(db *servicetest.Table) (shop, Deps) {
	s := shop{
		table: db, desk: &desk{table: db, took: time.Millisecond}, keys: servicetest.NewLocks(),
		places: &waitlist{}, urn: &urn{}, metrics: prometheus.NewRegistry(),
	}
	return s, Deps{
		Places: s.places, Entries: s.urn, Locks: together{s.keys}, LockWait: time.Second, Selling: func() error { return nil },
		Announce: func(context.Context, string) error { return nil }, Metrics: telemetry.New(s.metrics),
		Log: slog.New(slog.DiscardHandler),
	}
}

// together are locks of one server, which all take as long as one.
type together struct{ *servicetest.Locks }

// Lock implements model.Locker. It waits for locks that are held.
func (l together) Lock(ctx context.Context, name string, wait time.Duration) (model.Lease, error) {
	for began := time.Now(); l.Holds(strings.TrimPrefix(name, "lock:order:")) && time.Since(began) < wait; {
		servicetest.Pass(time.Millisecond)
	}
	return l.Locks.Lock(ctx, name, wait)
}

func (l together) TryAll(ctx context.Context, names []string) (errs []error, unlock func() error) {
	leases, errs := make([]model.Lease, len(names)), make([]error, len(names))
	var tries sync.WaitGroup
	for i, name := range names {
		tries.Go(func() {
			if leases[i], errs[i] = l.Lock(ctx, name, 0); errs[i] == nil {
				errs[i] = context.Cause(leases[i].Context())
			}
		})
	}
	tries.Wait()
	return errs, func() (failed error) {
		for _, lease := range leases {
			if lease != nil {
				failed = errors.Join(failed, lease.Unlock())
			}
		}
		return failed
	}
}

// singly has a shop whose locks cannot be taken together: a Cluster's, or those of several servers.
func singly(d *Deps) { d.Locks = d.Locks.(together).Locks }

func newShop(t *testing.T, change ...func(*Deps)) shop {
	t.Helper()
	s, deps := over(servicetest.NewTable())
	for _, change := range change {
		change(&deps)
	}
	s.cache = check.Value(cache.New(s.table, nil, deps.Metrics, deps.Log))(t)
	deps.Store, deps.Cache = s.desk, s.cache
	s.Orders = NewSync(deps)
	t.Cleanup(s.shut)
	return s
}

func (s shop) shut() {
	s.Close(context.Background())
	s.cache.Close(context.Background())
}

func inShop(t *testing.T, test func(*testing.T, shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newShop(t)) })
}

func TestMain(m *testing.M) { servicetest.Main(m) }

type hotShop struct {
	shop

	rows   *rows
	hot    *hotcopytest.Copies
	sale   *hotcopytest.Sale // in hot
	line   *line
	seller *asyncSeller
	doctor *doctor
}

func newHotShop(t *testing.T, change func(*Deps, *AsyncDeps)) hotShop {
	t.Helper()
	base, deps := over(servicetest.NewTable())
	s := hotShop{
		shop: base, rows: &rows{table: base.table, byID: map[string]model.Order{}}, hot: hotcopytest.New(t),
		line: newLine(), doctor: &doctor{},
	}
	voucher := s.table.Voucher
	voucher.Currency = "CNY"
	s.sale, s.hot.Took = s.hot.Add(voucher), servicetest.QueryTime
	s.cache = check.Value(cache.New(s.table, s.hot, deps.Metrics, deps.Log))(t)
	deps.Store, deps.Cache = s.rows, s.cache
	async := AsyncDeps{
		Hot: s.hot, Queue: s.line, Released: s.rows.DoneOrders, Epochs: epochs(s.epoch), ScriptLocks: true,
		Rebuild: s.doctor.rebuild, Relay: s.doctor.relay, Admission: telemetry.NewAdmission(s.metrics),
	}
	watch := backlog.New(s.line, 30*time.Second, async.Admission, deps.Log)
	async.Backlog = watch
	if change != nil {
		change(&deps, &async)
	}
	watching, end := context.WithCancel(context.Background())
	go watch.Run(watching)
	s.Orders = NewAsync(deps, async)
	s.seller = s.Orders.seller.(*asyncSeller)
	t.Cleanup(func() {
		end()
		s.shut()
	})
	return s
}

func (s hotShop) epoch(context.Context) (int64, error) { return s.sale.Epoch(), nil }

func inHotShop(t *testing.T, test func(*testing.T, hotShop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newHotShop(t, nil)) })
}

func inHotShops(t *testing.T, name string, test func(*testing.T, hotShop)) {
	t.Helper()
	servicetest.Bubble(t, name, func(t *testing.T) { test(t, newHotShop(t, nil)) })
}

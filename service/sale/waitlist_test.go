package sale

import (
	"context"
	"fmt"
	"log/slog"
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
		check.Equal(t, "reservations", s.hot.Calls("reserve"), 0)
		check.Equal(t, "rebuilds asked for", s.doctor.requests.Load(), 0)
	})
}

// desk is a store of orders whose transactions a test can hold up.
type desk struct {
	OrderStore // of the rest nothing is called

	table  *servicetest.Table
	took   time.Duration // of one transaction
	waited time.Duration // for the voucher's row
	err    error
	calls  atomic.Int64
	orders atomic.Int64
}

func (d *desk) CreateOrders(ctx context.Context, orders []model.Order) ([]model.Outcome, error) {
	d.calls.Add(1)
	select {
	case <-time.After(d.took):
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", model.ErrUnknownOutcome, ctx.Err())
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

// shop is a service of orders over fakes, in the bubble of one test.
type shop struct {
	*Orders
	table   *servicetest.Table
	desk    *desk
	keys    *servicetest.Locks
	metrics *prometheus.Registry
}

func newShop(t *testing.T) shop {
	t.Helper()
	db := servicetest.NewTable()
	s := shop{
		table: db, desk: &desk{table: db, took: time.Millisecond},
		keys: servicetest.NewLocks(), metrics: prometheus.NewRegistry(),
	}
	metrics := telemetry.New(s.metrics)
	entries := check.Value(cache.OfDatabase(db, metrics, slog.New(slog.DiscardHandler)))(t)
	s.Orders = NewSync(Deps{
		Store: s.desk, Cache: entries, Locks: s.keys, LockWait: time.Second, Selling: func() error { return nil },
		Metrics: metrics, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		s.Close(context.Background())
		entries.Close(context.Background())
	})
	return s
}

// inShop runs a test in a shop, on a clock of its own.
func inShop(t *testing.T, test func(*testing.T, shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newShop(t)) })
}

func TestMain(m *testing.M) { servicetest.Main(m) }

// hotShop is a service of asynchronous orders over fakes, in the bubble of one test.
type hotShop struct {
	*Orders

	table   *servicetest.Table
	rows    *rows
	hot     *hotcopytest.Copies
	sale    *hotcopytest.Sale // in hot
	line    *line
	keys    *servicetest.Locks
	cache   *cache.Vouchers
	seller  *asyncSeller
	doctor  *doctor
	metrics *prometheus.Registry
}

// newHotShop sells the voucher of newTable.
func newHotShop(t *testing.T, change func(*Deps, *AsyncDeps)) hotShop {
	t.Helper()
	db := servicetest.NewTable()
	s := hotShop{
		table: db, rows: &rows{table: db, byID: map[string]model.Order{}}, hot: hotcopytest.New(t), line: newLine(),
		keys: servicetest.NewLocks(), doctor: &doctor{}, metrics: prometheus.NewRegistry(),
	}
	voucher := db.Voucher
	voucher.Currency = "CNY"
	s.sale, s.hot.Took = s.hot.Add(voucher), servicetest.QueryTime
	metrics, log := telemetry.New(s.metrics), slog.New(slog.DiscardHandler)
	s.cache = check.Value(cache.OfHotCopies(db, s.hot, metrics, log))(t)
	orders := Deps{
		Store: s.rows, Cache: s.cache, Locks: s.keys, LockWait: time.Second, Metrics: metrics, Log: log,
		Announce: func(context.Context, string) error { return nil }, Selling: func() error { return nil },
	}
	async := AsyncDeps{
		Hot: s.hot, Queue: s.line, Released: s.rows.DoneOrders, Epochs: sameEpoch(s.hot).Latest, Rebuild: s.doctor.rebuild,
		ScriptLocks: true, Admission: telemetry.NewAdmission(s.metrics),
	}
	watch := backlog.New(s.line, 30*time.Second, async.Admission, log)
	async.Backlog = watch
	if change != nil {
		change(&orders, &async)
	}
	watching, end := context.WithCancel(context.Background())
	go watch.Run(watching)
	s.Orders = NewAsync(orders, async)
	s.seller = s.Orders.seller.(*asyncSeller)
	t.Cleanup(func() {
		end()
		s.Close(context.Background())
		s.cache.Close(context.Background())
	})
	return s
}

// inHotShop runs a test in a shop, on a clock of its own.
func inHotShop(t *testing.T, test func(*testing.T, hotShop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newHotShop(t, nil)) })
}

// inHotShops is inHotShop for a subtest, which runs beside the others.
func inHotShops(t *testing.T, name string, test func(*testing.T, hotShop)) {
	t.Helper()
	servicetest.Bubble(t, name, func(t *testing.T) { test(t, newHotShop(t, nil)) })
}

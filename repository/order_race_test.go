package repository_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"seckill/model"
)

// tally counts outcomes and keeps what winners were told.
type tally struct {
	mu      sync.Mutex
	created map[string]string // user → order
	already map[string]string // user → order named in a refusal
	counts  map[model.Code]int
}

func newTally() *tally {
	return &tally{created: map[string]string{}, already: map[string]string{}, counts: map[model.Code]int{}}
}

func (c *tally) add(t *testing.T, asked model.Order, outcome model.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if outcome.Err == nil {
		if earlier, ok := c.created[asked.UserID]; ok && earlier != outcome.Order.ID {
			t.Errorf("%s got %s and %s", asked.UserID, earlier, outcome.Order.ID)
		}
		c.created[asked.UserID] = outcome.Order.ID
		return
	}
	c.counts[model.CodeOf(outcome.Err)]++
	if e, ok := errors.AsType[*model.Error](outcome.Err); ok && e.Code == model.CodeAlreadyOrdered {
		c.already[asked.UserID] = e.OrderID
	}
}

// TestRace: 200 users, each three times at once, in batches over two instances,
// for 60 units. Exactly 60 are sold; who hears SOLD_OUT heard the truth; who
// hears ALREADY_ORDERED hears of his own order.
func TestRace(t *testing.T) {
	t.Parallel()
	const users, units = 200, 60
	overStores(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.store, f.options)
		v := f.onSale(t, units)
		var asked []model.Order
		for i := range users {
			for range 3 {
				asked = append(asked, order(t, v.ID, user(i)))
			}
		}
		rand.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
		const size = 10
		results := newTally()
		volley(len(asked)/size, func(n int) {
			instance := []*fixture{f, other}[n%2]
			batch := asked[n*size : (n+1)*size]
			outcomes, err := instance.orders.CreateOrders(t.Context(), batch)
			if err != nil {
				t.Errorf("batch %d: %v", n, err)
				return
			}
			for i, outcome := range outcomes {
				results.add(t, batch[i], outcome)
				if model.CodeOf(outcome.Err) == model.CodeSoldOut {
					// Nothing comes back in this test: sold out once is sold out for ever.
					now, err := f.vouchers.Get(t.Context(), v.ID)
					if err != nil || now.Remaining != 0 {
						t.Errorf("SOLD_OUT while %d remained (%v)", now.Remaining, err)
					}
				}
			}
		})
		if len(results.created) != units {
			t.Errorf("%d users bought, want %d; refusals %v", len(results.created), units, results.counts)
		}
		for who, id := range results.already {
			if results.created[who] != id {
				t.Errorf("%s heard of order %s, has %s", who, id, results.created[who])
			}
		}
		f.balanced(t, v.ID, units)
		// Winners who ask again hear of their order, losers of the end of the stock.
		for i := range users {
			refusal, _ := errors.AsType[*model.Error](f.place(t, order(t, v.ID, user(i))).Err)
			won := results.created[user(i)]
			if refusal == nil || refusal.OrderID != won || (won == "") != (refusal.Code == model.CodeSoldOut) {
				t.Errorf("%s (order %q) heard %v", user(i), won, refusal)
			}
		}
		now, err := f.vouchers.Get(t.Context(), v.ID)
		must(t, err)
		if now.Version <= v.Version || now.Phase != model.PhaseSoldOut {
			t.Errorf("voucher %+v after the sale", now)
		}
	})
}

// TestOneUserAtOnce: a hundred orders of one user, each alone.
func TestOneUserAtOnce(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 10)
		results := newTally()
		var created atomic.Int32
		volley(100, func(int) {
			o := order(t, v.ID, "alice")
			outcomes, err := f.orders.CreateOrders(t.Context(), []model.Order{o})
			if err != nil {
				t.Error(err)
				return
			}
			results.add(t, o, outcomes[0])
			if outcomes[0].Created {
				created.Add(1)
			}
		})
		if created.Load() != 1 || results.counts[model.CodeAlreadyOrdered] != 99 || results.already["alice"] != results.created["alice"] {
			t.Errorf("%d created, %v", created.Load(), results.counts)
		}
		f.balanced(t, v.ID, 1)
	})
}

// TestOneIDAtOnce: the same order sent many times is created once, and every
// sender hears of the same row.
func TestOneIDAtOnce(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 10)
		o := order(t, v.ID, "alice")
		var created atomic.Int32
		volley(40, func(int) {
			outcomes, err := f.orders.CreateOrders(t.Context(), []model.Order{o})
			if err != nil || outcomes[0].Err != nil || outcomes[0].Order.ID != o.ID {
				t.Errorf("outcome %+v, %v", outcomes, err)
				return
			}
			if outcomes[0].Created {
				created.Add(1)
			}
		})
		if created.Load() != 1 {
			t.Errorf("created %d times", created.Load())
		}
		f.balanced(t, v.ID, 1)
	})
}

// TestMixedVouchers: batches over several vouchers in every order, while stock
// changes and patches run. Everything is sold, nothing oversold.
func TestMixedVouchers(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		mixedVouchers(t, f)
	})
}

func mixedVouchers(t *testing.T, f *fixture) {
	t.Helper()
	const vouchers, units, writers, rounds, size = 4, 20, 8, 8, 16
	var list []model.Voucher
	for range vouchers {
		list = append(list, f.onSale(t, units))
	}
	volley(writers+1, func(w int) {
		if w == writers {
			for n := range rounds {
				v := list[n%vouchers]
				one, title := int64(1), "Renamed"
				_, err := f.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Delta: &one}, model.Idempotency{})
				_, err2 := f.vouchers.Patch(t.Context(), v.ID, model.VoucherPatch{Title: &title})
				if err = errors.Join(err, err2); err != nil {
					t.Errorf("change: %v", err)
				}
			}
			return
		}
		for n := range rounds {
			var batch []model.Order
			for i := range size { // users overlap between the writers
				batch = append(batch, order(t, list[rand.IntN(vouchers)].ID, user((w*size/2+n*size+i)%160)))
			}
			if _, err := f.orders.CreateOrders(t.Context(), batch); err != nil {
				t.Errorf("writer %d: %v", w, err)
			}
		}
	})
	for i, v := range list { // whoever is still without, buys what is left
		var rest []model.Order
		for u := range 100 {
			rest = append(rest, order(t, v.ID, user(1000+u)))
		}
		f.create(t, rest...)
		f.balanced(t, v.ID, units+rounds/vouchers)
		_ = i
	}
}

// TestHonestUnderRestock: units are added while buyers fight. Whoever hears
// SOLD_OUT can name an instant since he asked at which nothing remained.
func TestHonestUnderRestock(t *testing.T) {
	t.Parallel()
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 5)
		const restocks = 20
		var done atomic.Bool
		volley(9, func(w int) {
			if w == 8 {
				for range restocks {
					three := int64(3)
					if _, err := f.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Delta: &three}, model.Idempotency{}); err != nil {
						t.Error(err)
					}
				}
				done.Store(true)
				return
			}
			for n := 0; !done.Load(); n++ {
				batch := []model.Order{order(t, v.ID, newID(t)), order(t, v.ID, newID(t))}
				outcomes, err := f.orders.CreateOrders(t.Context(), batch)
				if err != nil {
					t.Error(err)
					return
				}
				// In one transaction, earlier ones are served first.
				if outcomes[0].Err != nil && outcomes[1].Err == nil {
					t.Error("the second was served, the first was not")
				}
			}
		})
		// Everything offered finds a buyer: nobody was turned away for good.
		var rest []model.Order
		for range 5 + 3*restocks {
			rest = append(rest, order(t, v.ID, newID(t)))
		}
		f.create(t, rest...)
		f.balanced(t, v.ID, 5+3*restocks)
	})
}

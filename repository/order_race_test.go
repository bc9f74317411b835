//part:stores

package repository_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

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

// Three users for each unit ask three times at once: all units are sold, no more, and every refusal is true.
func TestRace(t *testing.T) {
	t.Parallel()
	users := check.Count(t, "USERS", 40, 200)
	units := users / 3
	overStores(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.store, f.options)
		v := f.onSale(t, int64(units))
		var asked []model.Order
		for i := range users {
			for range 3 {
				asked = append(asked, order(t, v.ID, user(i)))
			}
		}
		rand.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
		const size = 10
		results := newTally()
		check.Volley(len(asked)/size, func(n int) {
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
					check.That(t, err == nil && now.Remaining == 0,
						"SOLD_OUT while %d remained (%v)", now.Remaining, err)
				}
			}
		})
		check.That(t, len(results.created) == units,
			"%d users bought, want %d; refusals %v", len(results.created), units, results.counts)
		for who, id := range results.already {
			check.Equal(t, "the order of "+who+", who heard of it", results.created[who], id)
		}
		f.balanced(t, v.ID, int64(units))
		// Winners who ask again hear of their order, losers of the end of the stock.
		for i := range users {
			refusal, _ := errors.AsType[*model.Error](f.place(t, order(t, v.ID, user(i))).Err)
			won := results.created[user(i)]
			check.That(t, refusal != nil && refusal.OrderID == won &&
				(won == "") == (refusal.Code == model.CodeSoldOut), "%s (order %q) heard %v", user(i), won, refusal)
		}
		now := check.Value(f.vouchers.Get(t.Context(), v.ID))(t)
		check.That(t, now.Version > v.Version && now.Phase == model.PhaseSoldOut, "voucher %+v after the sale", now)
	})
}

// Many orders of one user. One that is sent many times is created once, and every sender gets the same row.
func TestOneUserAtOnce(t *testing.T) {
	t.Parallel()
	orders := check.Count(t, "ORDERS", 20, 100)
	overStores(t, func(t *testing.T, f *fixture) {
		v := f.onSale(t, 10)
		results := newTally()
		var created atomic.Int32
		check.Volley(orders, func(int) {
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
		check.That(t, created.Load() == 1 && results.counts[model.CodeAlreadyOrdered] == orders-1 &&
			results.already["alice"] == results.created["alice"], "%d created, %v", created.Load(), results.counts)
		same := order(t, v.ID, "bob")
		check.Volley(12, func(int) {
			outcomes, err := f.orders.CreateOrders(t.Context(), []model.Order{same})
			if err != nil || outcomes[0].Err != nil || outcomes[0].Order.ID != same.ID {
				t.Errorf("outcome %+v, %v", outcomes, err)
			} else if outcomes[0].Created {
				created.Add(1)
			}
		})
		check.Equal(t, "orders created, with that of many senders", created.Load(), 2)
		f.balanced(t, v.ID, 2)
	})
}

func mixedVouchers(t *testing.T, f *fixture) {
	t.Helper()
	const vouchers, units, size = 4, 20, 16
	writers, rounds := check.Count(t, "WRITERS", 4, 8), vouchers*check.Count(t, "ROUNDS", 1, 2)
	var list []model.Voucher
	var added [vouchers]int64
	for range vouchers {
		list = append(list, f.onSale(t, units))
	}
	check.Volley(writers+1, func(w int) {
		if w == writers {
			for n := range rounds {
				v := list[n%vouchers]
				for _, delta := range []int64{3, -2} { // down, too, unless all is sold
					_, err := f.vouchers.ChangeStock(t.Context(), v.ID, model.StockChange{Delta: &delta},
						model.Idempotency{})
					if err == nil {
						added[n%vouchers] += delta
					} else if delta > 0 || model.CodeOf(err) != model.CodeConflict {
						t.Errorf("change: %v", err)
					}
				}
				check.Must(t, check.ErrorOf(f.vouchers.Patch(t.Context(), v.ID,
					model.VoucherPatch{Title: new("Renamed")})))
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
	for i, v := range list { // other users buy what is left
		var rest []model.Order
		for u := range units + 3*rounds {
			rest = append(rest, order(t, v.ID, user(1000+u)))
		}
		f.create(t, rest...)
		f.balanced(t, v.ID, units+added[i])
	}
}

// bedlam is everything that touches vouchers and orders in async mode, at once. Every reservation becomes one row.
type bedlam struct {
	t        *testing.T
	f        *fixture
	vouchers []model.Voucher
	sequence atomic.Uint64 // of the last message

	mu   sync.Mutex
	sent []model.Reservation
	gone map[string]bool // released orders
}

func runBedlam(t *testing.T, f *fixture) {
	t.Helper()
	other := openFixture(t, f.store, f.options)
	f.asIn(t, model.ModeAsync)
	other.asIn(t, model.ModeAsync)
	b := &bedlam{t: t, f: f, gone: map[string]bool{}}
	for range 3 {
		b.vouchers = append(b.vouchers, f.onSale(t, 25))
	}
	writers, batches := check.Count(t, "WRITERS", 3, 4), check.Count(t, "BATCHES", 4, 10)
	jobs := []func(*fixture){b.cancel, b.cancel, b.stock, b.rebuild, b.rebuild, b.relay, b.relay, b.snapshot}
	turns := make([]chan struct{}, len(jobs)) // every batch gives every job a turn
	for i := range turns {
		turns[i] = make(chan struct{}, writers*batches)
	}
	var writing atomic.Int32
	writing.Store(int32(writers))
	check.Volley(writers+len(jobs), func(i int) {
		instance := []*fixture{f, other}[i%2]
		if i >= writers {
			for range turns[i-writers] {
				jobs[i-writers](instance)
			}
			return
		}
		for range batches {
			for _, turn := range turns {
				turn <- struct{}{}
			}
			b.persist(instance)
		}
		if writing.Add(-1) == 0 {
			for _, turn := range turns {
				close(turn)
			}
		}
	})
	b.check()
}

// fine: refused with one of the codes, superseded, or the machine is busy.
func (b *bedlam) fine(what string, err error, codes ...model.Code) {
	b.t.Helper()
	code := model.CodeOf(err)
	if err != nil && !errors.Is(err, model.ErrSuperseded) && code != model.CodeUnavailable &&
		!slices.Contains(codes, code) {
		b.t.Errorf("%s: %v", what, err)
	}
}

func (b *bedlam) any() model.Voucher { return b.vouchers[rand.IntN(len(b.vouchers))] }

func (b *bedlam) persist(f *fixture) {
	sequence := b.sequence.Add(1)
	var batch []model.Reservation
	for range 20 {
		v := b.any()
		epoch := f.record(b.t, v.ID).Epoch - int64(rand.IntN(2))
		batch = append(batch, reservation(b.t, v.ID, user(rand.IntN(300)), max(epoch, 1), sequence))
	}
	b.mu.Lock()
	b.sent = append(b.sent, batch...)
	b.mu.Unlock()
	check.Volley(2, func(int) { // delivered to two workers
		left := slices.Clone(batch)
		for len(left) > 0 && !b.t.Failed() { // too busy, or not known yet: delivered once more
			left = b.deliver(f, left)
		}
	})
}

// deliver returns the reservations that are to come again. With no hot copy there, none holds those of replaced ones.
func (b *bedlam) deliver(f *fixture, batch []model.Reservation) (left []model.Reservation) {
	b.t.Helper()
	outcomes, err := f.orders.Persist(b.t.Context(), batch)
	if err != nil {
		if model.CodeOf(err) != model.CodeUnavailable {
			b.t.Errorf("persist: %v", err)
			return nil
		}
		return batch
	}
	for i, outcome := range outcomes {
		r := batch[i]
		switch {
		case errors.Is(outcome.Err, model.ErrCopyReplaced):
			opened := f.record(b.t, r.VoucherID).OpenEpoch
			r.Absent = &opened
			left = append(left, r)
		case outcome.Err != nil:
			b.t.Errorf("persist order %s: %v", r.ID, outcome.Err)
		}
	}
	return left
}

func (b *bedlam) cancel(f *fixture) {
	b.mu.Lock()
	if len(b.sent) == 0 {
		b.mu.Unlock()
		return
	}
	r := b.sent[rand.IntN(len(b.sent))]
	b.mu.Unlock()
	_, _, err := f.cancel(b.t.Context(), r.UserID, r.ID)
	b.fine("cancel", err, model.CodeNotFound, model.CodeIllegalState)
}

func (b *bedlam) stock(f *fixture) {
	id, title := b.any().ID, "Renamed"
	change := model.StockChange{Delta: new(int64(rand.IntN(7) - 3))}
	intent, needed, err := f.vouchers.IntendStock(b.t.Context(), id, change, model.Idempotency{})
	if err == nil {
		_, err = f.vouchers.ChangeStock(b.t.Context(), id, change, model.Idempotency{})
	}
	b.fine("change stock", err, model.CodeConflict)
	if err != nil && needed {
		b.fine("drop the intent", f.vouchers.DropIntent(b.t.Context(), intent))
	}
	_, err = f.vouchers.Patch(b.t.Context(), id, model.VoucherPatch{Title: &title})
	b.fine("patch", err)
}

func (b *bedlam) rebuild(f *fixture) {
	id := b.any().ID
	record := f.record(b.t, id)
	_, err := f.copies.Close(b.t.Context(), id, record.Epoch, "")
	if err == nil {
		err = f.copies.SetBarrier(b.t.Context(), id, record.Epoch+1, b.sequence.Load())
	}
	if err == nil {
		err = f.copies.Progress(b.t.Context(), id, record.Epoch+1)
	}
	if err == nil {
		err = f.copies.Open(b.t.Context(), id, record.Epoch+1)
	}
	b.fine("rebuild", err)
}

func (b *bedlam) relay(f *fixture) {
	list := check.Value(f.releases.After(b.t.Context(), model.Release{}, 50))(b.t)
	var ids []int64
	var orders []string
	b.mu.Lock()
	for i, r := range list {
		b.gone[r.OrderID] = true
		if i%2 == 0 {
			ids = append(ids, r.ID)
		}
		orders = append(orders, r.OrderID)
	}
	b.mu.Unlock()
	check.Volley(2, func(i int) {
		if i == 0 {
			b.fine("done", f.releases.Done(b.t.Context(), ids))
		} else {
			b.fine("done", f.releases.DoneOrders(b.t.Context(), orders))
		}
	})
}

func (b *bedlam) snapshot(f *fixture) {
	id := b.any().ID
	err := f.copies.Snapshot(b.t.Context(), id, f.record(b.t, id).Epoch, func(s model.Snapshot) error {
		live := int64(0)
		err := s.Live(b.t.Context(), func(some []model.Order) error {
			live += int64(len(some))
			return nil
		})
		if v := s.Voucher; v.Stock != v.Remaining+live {
			b.t.Errorf("%d of %d remain with %d live orders", v.Remaining, v.Stock, live)
		}
		return err
	})
	b.fine("snapshot", err)
}

func (b *bedlam) check() {
	t, f := b.t, b.f
	ids := make([]string, len(b.sent))
	for i, r := range b.sent {
		ids[i] = r.ID
	}
	rows := check.Value(f.orders.Find(t.Context(), ids))(t)
	waiting := map[string]bool{}
	list := check.Value(f.releases.After(t.Context(), model.Release{}, 1<<20))(t)
	for _, r := range list {
		waiting[r.OrderID] = true
	}
	counts := map[string]int{}
	live := map[string]int64{}
	for _, r := range b.sent {
		row, ok := rows[r.ID]
		counts[string(row.Status)+row.Reason]++
		check.That(t, ok && row.UserID == r.UserID, "reservation %s became %+v", r.ID, row)
		if row.Live() {
			live[r.VoucherID]++
		} else if !waiting[r.ID] && !b.gone[r.ID] {
			t.Errorf("%s is %s and was never released", r.ID, row.Status)
		}
	}
	for _, v := range b.vouchers {
		f.balanced(t, v.ID, live[v.ID])
	}
	t.Logf("%d reservations: %v", len(b.sent), counts)
	if !check.Faults {
		return // so few may miss an ending
	}
	for _, kind := range []string{"unpaid", "canceled", "failedSUPERSEDED", "failedALREADY_ORDERED", "failedSOLD_OUT"} {
		check.That(t, counts[kind] > 0, "no order was %s", kind)
	}
}

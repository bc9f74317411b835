package repository_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"seckill/model"
	"seckill/repository"
)

// bedlam is everything that touches vouchers and orders in async mode, at once.
type bedlam struct {
	t        *testing.T
	f        *fixture
	vouchers []model.Voucher
	sequence atomic.Uint64 // of the last message

	mu   sync.Mutex
	sent []model.Reservation
	gone map[string]bool // released orders
}

// TestBedlam: reservations of several epochs, delivered twice, cancels, stock
// changes, patches, rebuilds and the relay of releases, over two instances.
// Nobody deadlocks, every reservation becomes one row, and all units add up.
func TestBedlam(t *testing.T) {
	t.Parallel()
	overAsync(t, func(t *testing.T, f *fixture) { runBedlam(t, f) })
}

func runBedlam(t *testing.T, f *fixture) {
	t.Helper()
	other := openFixture(t, f.store, f.options)
	other.asIn(t, model.ModeAsync)
	b := &bedlam{t: t, f: f, gone: map[string]bool{}}
	for range 3 {
		b.vouchers = append(b.vouchers, f.onSale(t, 25))
	}
	const writers, batches = 4, 10
	jobs := []func(*fixture){b.cancel, b.cancel, b.stock, b.rebuild, b.rebuild, b.relay, b.relay, b.snapshot}
	turns := make([]chan struct{}, len(jobs)) // every batch gives every job a turn
	for i := range turns {
		turns[i] = make(chan struct{}, writers*batches)
	}
	var writing atomic.Int32
	writing.Store(writers)
	volley(writers+len(jobs), func(i int) {
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
	if err != nil && !errors.Is(err, model.ErrSuperseded) && code != model.CodeUnavailable && !slices.Contains(codes, code) {
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
	volley(2, func(int) { // delivered to two workers
		_, err := f.orders.Persist(b.t.Context(), batch)
		for n := 0; n < 10 && err != nil && model.CodeOf(err) == model.CodeUnavailable; n++ {
			_, err = f.orders.Persist(b.t.Context(), batch) // too busy: delivered once more
		}
		if err != nil {
			b.t.Errorf("persist: %v", err)
		}
	})
}

func (b *bedlam) cancel(f *fixture) {
	b.mu.Lock()
	if len(b.sent) == 0 {
		b.mu.Unlock()
		return
	}
	r := b.sent[rand.IntN(len(b.sent))]
	b.mu.Unlock()
	_, _, err := f.orders.Cancel(b.t.Context(), r.UserID, r.ID)
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
	_, err := f.copies.Close(b.t.Context(), id, record.Epoch)
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
	list, err := f.releases.After(b.t.Context(), model.Release{}, 50)
	must(b.t, err)
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
	volley(2, func(i int) {
		if i == 0 {
			b.fine("done", f.releases.Done(b.t.Context(), ids))
		} else {
			b.fine("done", f.releases.DoneOrders(b.t.Context(), orders))
		}
	})
}

// snapshot: what one instant shows adds up.
func (b *bedlam) snapshot(f *fixture) {
	id := b.any().ID
	err := f.copies.Snapshot(b.t.Context(), id, f.record(b.t, id).Epoch, func(s *repository.Snapshot) error {
		live := int64(0)
		err := s.Live(b.t.Context(), func(some []model.Order) error {
			live += int64(len(some))
			return nil
		})
		if v := s.Voucher(); v.Stock != v.Remaining+live {
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
	rows, err := f.orders.Find(t.Context(), ids)
	must(t, err)
	waiting := map[string]bool{}
	list, err := f.releases.After(t.Context(), model.Release{}, 1<<20)
	must(t, err)
	for _, r := range list {
		waiting[r.OrderID] = true
	}
	counts := map[string]int{}
	live := map[string]int64{}
	for _, r := range b.sent {
		row, ok := rows[r.ID]
		counts[string(row.Status)+row.Reason]++
		if !ok || row.UserID != r.UserID {
			t.Errorf("reservation %s became %+v", r.ID, row)
		}
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
	for _, kind := range []string{"unpaid", "canceled", "failedSUPERSEDED", "failedALREADY_ORDERED", "failedSOLD_OUT"} {
		if counts[kind] == 0 {
			t.Errorf("no order was %s", kind)
		}
	}
}

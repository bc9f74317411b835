package sale

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"seckill/internal/batch"
	"seckill/model"
)

const (
	// troubleTerm is how long a voucher stays apart after trouble of its own. A row that
	// is still locked then costs the others one more wait, and transactions of its own
	// cost a voucher nothing.
	troubleTerm = 10 * time.Second
	// suspicionTerm is how long vouchers stay apart of which one has spoilt a
	// transaction: long enough for each to show by itself which it is.
	suspicionTerm = time.Second
	// lateAfter is when a run takes long: shortly before another one begins beside it,
	// which must not wait for the same row while it keeps the rows of others.
	lateAfter = batch.Patience * 4 / 5
	// maxApart bounds the vouchers that are remembered. Beyond that all are
	// forgotten, and learnt again.
	maxApart = 1000
)

// apart remembers which vouchers have left the shared transactions, and until when, and
// which are in one that takes long.
type apart struct {
	any atomic.Bool // most orders need not look further

	mu    sync.Mutex
	until map[string]time.Time
	late  map[string]*run
	swept time.Time
}

// run is one shared transaction with its repetitions.
type run struct{ ended chan struct{} }

func newApart() *apart { return &apart{until: map[string]time.Time{}, late: map[string]*run{}} }

// look tells whether a voucher has transactions of its own, or else which late run it is
// in, if that is not own.
func (a *apart) look(voucherID string, own *run) (alone bool, late *run) {
	if !a.any.Load() {
		return false, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	if time.Now().Before(a.until[voucherID]) {
		return true, nil
	}
	if late = a.late[voucherID]; late == own {
		late = nil
	}
	return false, late
}

// add puts a voucher apart for a term, which shortens no longer one. It reports whether
// it is the only one.
func (a *apart) add(voucherID string, term time.Duration) (first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sweep()
	if len(a.until) >= maxApart {
		clear(a.until)
	}
	if until := time.Now().Add(term); until.After(a.until[voucherID]) {
		first = len(a.until) == 0
		a.until[voucherID] = until
	}
	a.any.Store(true)
	return first
}

// sweep forgets the vouchers whose term is over, now and then. The caller holds the lock.
func (a *apart) sweep() {
	now := time.Now()
	if now.Sub(a.swept) < suspicionTerm {
		return
	}
	a.swept = now
	maps.DeleteFunc(a.until, func(_ string, until time.Time) bool { return !now.Before(until) })
	a.any.Store(len(a.until)+len(a.late) > 0)
}

// watch notes the vouchers of a run when it takes long. The function that it returns ends
// the run.
func (a *apart) watch(r *run, orders []model.Order) (end func()) {
	over := false
	timer := time.AfterFunc(lateAfter, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if over {
			return
		}
		for i := range orders {
			if id := orders[i].VoucherID; a.late[id] == nil {
				a.late[id] = r
			}
		}
		a.any.Store(true)
	})
	return func() {
		timer.Stop()
		a.mu.Lock()
		defer a.mu.Unlock()
		over = true
		maps.DeleteFunc(a.late, func(_ string, late *run) bool { return late == r })
		close(r.ended)
	}
}

package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"seckill/model"
)

const (
	// firstProbe and longestProbe are the waits before a voucher in trouble is tried
	// again: growing, so that the other vouchers lose little time by it, and short,
	// because its buyers wait.
	firstProbe   = 100 * time.Millisecond
	longestProbe = 2 * time.Second
	// poisonSuspicion is how many orders may be refused for their data while none is
	// stored. With so many the database itself is suspected, which may lack a column,
	// and must not bury a whole queue.
	poisonSuspicion = 10
	// poisonPatience is how long an order must have been refused before it is buried
	// although no other order was stored, which would prove that the database is well.
	poisonPatience = 10 * time.Second
	// maxDoubts bounds the vouchers, and the orders, that are remembered. Beyond that
	// all are forgotten, and learnt again.
	maxDoubts = 10_000
)

// troubles remembers the vouchers in trouble: their orders could not be stored, and
// that is no single order's fault. It may be a lock, a trigger, or a database that is
// away.
type troubles struct {
	log *slog.Logger

	mu       sync.Mutex
	vouchers map[string]*trouble
}

type trouble struct {
	times int
	until time.Time
	err   error
}

func newTroubles(log *slog.Logger) *troubles {
	return &troubles{log: log, vouchers: map[string]*trouble{}}
}

// look tells whether a voucher is in trouble, and why it is not to be tried now. A
// caller that may try it is the only one until it calls add, remove or later.
func (t *troubles) look(voucherID string) (troubled bool, notNow error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.vouchers[voucherID]
	if known == nil {
		return false, nil
	}
	if time.Now().Before(known.until) {
		return true, notTried(voucherID, known.err)
	}
	known.until = time.Now().Add(persistTimeout)
	return true, nil
}

// later notes that a voucher was not tried, though its turn had come.
func (t *troubles) later(voucherID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.vouchers[voucherID]; known != nil {
		known.wait()
	}
}

func (t *trouble) wait() {
	t.until = time.Now().Add(min(firstProbe<<min(t.times, 10), longestProbe))
}

// notTried is the verdict on the orders of a voucher that was not tried.
func notTried(voucherID string, cause error) error {
	err := fmt.Errorf("%w: voucher %s", model.ErrNotTried, voucherID)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return model.Unavailable("The voucher's orders could not be stored a moment ago.", err)
}

// eased notes that some of a voucher's orders were stored: it is tried again soon.
func (t *troubles) eased(voucherID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.vouchers[voucherID]; known != nil {
		known.times = 1
		known.wait()
	}
}

// add notes that a voucher was tried in vain, and returns how often in a row.
func (t *troubles) add(ctx context.Context, voucherID string, err error) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.vouchers) == 0 {
		t.log.WarnContext(ctx, "the orders of a voucher cannot be stored now, and maybe those of others",
			slog.String("voucher_id", voucherID), slog.Any("error", err))
	}
	if len(t.vouchers) >= maxDoubts {
		clear(t.vouchers)
	}
	known := t.vouchers[voucherID]
	if known == nil {
		known = &trouble{}
		t.vouchers[voucherID] = known
	}
	known.err = err
	known.wait()
	known.times++
	return known.times
}

// remove notes that a voucher's orders were stored.
func (t *troubles) remove(ctx context.Context, voucherID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.vouchers[voucherID] == nil {
		return
	}
	delete(t.vouchers, voucherID)
	if len(t.vouchers) == 0 {
		t.log.InfoContext(ctx, "the orders of every voucher can be stored again", slog.String("last", voucherID))
	}
}

// suspects remembers the orders that were refused for their data.
type suspects struct {
	mu     sync.Mutex
	orders map[string]*suspicion
}

type suspicion struct {
	since  time.Time
	stored uint64 // orders that the worker had stored at the first refusal
	said   said
}

// said is what was logged and counted of an order, so that it is not said again when
// the order is delivered again.
type said int

const (
	saidNothing said = iota
	saidBuried
	saidStuck
)

func newSuspects() *suspects { return &suspects{orders: map[string]*suspicion{}} }

// of returns the suspicion against an order, a new one if there was none. The caller
// holds the lock.
func (s *suspects) of(orderID string, stored uint64) *suspicion {
	known := s.orders[orderID]
	if known == nil {
		if len(s.orders) >= maxDoubts {
			clear(s.orders)
		}
		known = &suspicion{since: time.Now(), stored: stored}
		s.orders[orderID] = known
	}
	return known
}

func (s *suspects) refused(orderID string, stored uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(orderID, stored)
}

func (s *suspects) known(orderID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders[orderID] != nil
}

// guilty reports whether the order's own data were the reason of its refusal: another
// order was stored since, or it has been refused for long and is one of a few.
func (s *suspects) guilty(orderID string, stored uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.of(orderID, stored)
	return stored > known.stored || time.Since(known.since) >= poisonPatience && len(s.orders) < poisonSuspicion
}

// first reports whether what is to be said of an order was not said before.
func (s *suspects) first(orderID string, what said) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.of(orderID, 0)
	if known.said >= what {
		return false
	}
	known.said = what
	return true
}

func (s *suspects) forget(orderID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.orders, orderID)
}

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
	// firstProbe and longestProbe are the waits before a voucher is tried again
	// whose orders could not be stored: growing, so that it costs the others
	// little, and short, because its buyers wait.
	firstProbe   = 100 * time.Millisecond
	longestProbe = 2 * time.Second
	// poisonSuspicion is how many orders are refused for their data while not one
	// is stored before the database is taken for bad: it lacks a column, say. That
	// must not bury a queue.
	poisonSuspicion = 10
	// poisonPatience is how long fewer of them must have been refused, where
	// no other order is stored that could prove that the database is well.
	poisonPatience = 10 * time.Second
	// maxDoubts bounds what is remembered; beyond it, it is learnt anew.
	maxDoubts = 10_000
)

// troubles remembers the vouchers whose orders could not be stored, for reasons
// that are not in a single order: a lock, a trigger, a database that is away.
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

// look tells whether a voucher is in trouble, and why it is not to be tried now.
// Who may try it is the only one until add, remove or later says how that ended.
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

// notTried says that a voucher's orders were left alone.
func notTried(voucherID string, cause error) error {
	err := fmt.Errorf("%w: voucher %s", model.ErrNotTried, voucherID)
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return model.Unavailable("The voucher's orders could not be stored a moment ago.", err)
}

// eased notes that some of a voucher's orders are stored: the next try comes soon.
func (t *troubles) eased(voucherID string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.vouchers[voucherID]; known != nil {
		known.times = 1
		known.wait()
	}
}

// add notes that a voucher was tried in vain, and tells how many times in a row.
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

// remove notes that a voucher's orders are stored.
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

// said is what the log and the metrics know of an order that comes again.
type said int

const (
	saidNothing said = iota
	saidBuried
	saidStuck
)

func newSuspects() *suspects { return &suspects{orders: map[string]*suspicion{}} }

// of finds what is known of an order, or begins. The caller holds the lock.
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

// guilty reports whether the refusal is the order's own: another one was stored
// since, or it has been refused for long and is one of a few.
func (s *suspects) guilty(orderID string, stored uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.of(orderID, stored)
	return stored > known.stored || time.Since(known.since) >= poisonPatience && len(s.orders) < poisonSuspicion
}

// first reports whether something of an order is to be said for the first time.
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

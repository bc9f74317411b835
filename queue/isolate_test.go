package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"seckill/internal/budget"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// spell is a time in which something is not well.
type spell struct {
	verdict  error
	from, to time.Duration
}

func (s spell) at(now time.Duration) bool { return s.verdict != nil && s.from <= now && now < s.to }

// history is a sale in which any voucher may be in trouble at any time, and all may.
type history struct {
	*server

	vouchers []spell
	outage   spell

	mu   sync.Mutex
	came map[string]uint64        // orders, and the messages in which they came
	done map[string]uint64        // and as of which they were done
	when map[uint64]time.Duration // messages that all vouchers share
}

func newHistory(t *testing.T, chance *rand.Rand) *history {
	t.Helper()
	h := &history{server: newServer(t), came: map[string]uint64{}, done: map[string]uint64{}, when: map[uint64]time.Duration{}}
	within := func(n time.Duration) time.Duration { return time.Duration(chance.Int64N(int64(n))) }
	for range 1 + chance.IntN(20) {
		verdict := []error{
			nil, model.Unavailable("its row is locked", nil), errors.New("a bug"), model.Unavailable("a rebuild", model.ErrCopyReplaced),
			model.Unavailable("it rests", model.ErrNotTried),
		}[chance.IntN(5)]
		from := within(30 * time.Second)
		h.vouchers = append(h.vouchers, spell{verdict, from, from + within(time.Minute)})
	}
	if chance.IntN(3) == 0 {
		from := within(30 * time.Second)
		h.outage = spell{outage(model.Unavailable("away", nil)), from, from + within(10*time.Second)}
	}
	return h
}

func (h *history) now() time.Duration { return time.Since(h.began) }

// sell stores a message that all vouchers share.
func (h *history) sell(t *testing.T, chance *rand.Rand) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	orders := someOrders(1 + chance.IntN(20))
	for i := range orders {
		orders[i].ID = fmt.Sprintf("o%d.%d", len(h.came), chance.IntN(len(h.vouchers)))
		h.came[orders[i].ID] = h.stored + 1
	}
	h.when[h.stored+1] = h.now()
	h.store(roads.subject, check.Value(encode(orders))(t))
}

func (h *history) persist(_ context.Context, orders []model.Reservation) []error {
	<-time.After(5 * time.Millisecond)
	h.mu.Lock()
	defer h.mu.Unlock()
	verdicts := make([]error, len(orders))
	for i, r := range orders {
		var voucher int
		_, _ = fmt.Sscan(r.VoucherID, &voucher)
		switch mine := h.vouchers[voucher]; {
		case mine.at(h.now()):
			verdicts[i] = mine.verdict
		case h.outage.at(h.now()):
			verdicts[i] = h.outage.verdict
		default:
			h.done[r.ID] = r.Sequence
		}
	}
	return verdicts
}

// holdUp is how long a message that all share is kept at most while nothing ails all of them: by a rebuild, over
// strayTries deliveries, after it could not be moved beside a bug.
const holdUp = budget.Answer + 3*time.Second

// Whatever ails a voucher, for however long: each message that all share is acknowledged soon, no order is lost, and
// none counts as of another message, but for those that waited for a rebuild.
func TestNobodyWaitsForTheTroubleOfAnother(t *testing.T) {
	t.Parallel()
	for range check.Count(t, "ROUNDS", 20, 300) {
		chance := check.Seeded(t)
		synctest.Test(t, func(t *testing.T) {
			h := newHistory(t, chance)
			stop := h.consume(t, h.persist, ConsumeOptions{MaxOrders: 1 + chance.IntN(40)})
			refused := time.Duration(chance.Int64N(int64(30 * time.Second)))
			for h.now() < 30*time.Second {
				h.sell(t, chance)
				<-time.After(time.Duration(chance.Int64N(int64(time.Second))))
				h.refuse(h.now() > refused && h.now() < refused+2*time.Second && chance.IntN(2) == 0)
			}
			h.refuse(false)
			<-time.After(2 * time.Minute)
			stop()
			check.Equal(t, "orders that are done", len(h.done), len(h.came))
			most := 2 * len(h.vouchers) * len(h.when) // twice where not all could be stored at once
			check.That(t, h.isolated <= most, "%d messages of orders isolated, want at most %d: once is enough", h.isolated, most)
			again := int(h.stored) - len(h.when) - h.isolated
			check.That(t, again <= 60*len(h.when), "%d messages of orders that wait for a rebuild: none is published again more than once a second", again)
			for id, sequence := range h.done {
				_, voucher, _ := strings.Cut(id, ".")
				var of int
				_, _ = fmt.Sscan(voucher, &of)
				moved := errors.Is(h.vouchers[of].verdict, model.ErrCopyReplaced)
				check.That(t, sequence == h.came[id] || moved && sequence > h.came[id], "%s came in message %d, and counts as of %d", id, h.came[id], sequence)
			}
			for sequence, from := range h.when {
				if h.outage.verdict != nil && from < h.outage.to {
					from = max(from, h.outage.to)
				}
				if from > refused-holdUp && from < refused+2*time.Second { // nothing could be moved
					from = max(from, refused+2*time.Second)
				}
				_, at, _ := strings.Cut(h.heard(sequence), "ack at ")
				acked := check.Value(time.ParseDuration(at))(t)
				check.That(t, acked < from+holdUp, "message %d of %v was kept until %v: %s", sequence, h.when[sequence], acked, h.heard(sequence))
			}
		})
	}
}

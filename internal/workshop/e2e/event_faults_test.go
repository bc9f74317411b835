//go:build faults

//part:kills

package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

func slowly(t testing.TB) *listener {
	t.Helper()
	return listens(t, func() int {
		time.Sleep(10 * time.Millisecond) // real time: that is what makes it slow
		return http.StatusNoContent
	})
}

// 10,000 events to three receivers, one of them dead for a time, one slow, one that answers 500 at random, while the
// sender is killed ten times: each hears every event, and of no order in another order than it happened.
func TestEventsOutliveTheirSender(t *testing.T) {
	t.Parallel()
	const orders, kills, buyers = 5000, 10, 16
	var alive atomic.Bool
	dead := listens(t, func() int { return map[bool]int{true: 204, false: 503}[alive.Load()] })
	slow := slowly(t)
	moody := listens(t, func() int { return []int{204, 500, 204}[rand.N(3)] })
	s := onServers(t).with(hearing(dead, slow, moody))
	sender := launch(t, s.role("worker"))
	a := start(t, s.role("api"))
	voucher := a.onSale(t, orders)
	ids := make([]string, orders)
	var buying sync.WaitGroup
	for n := range buyers {
		buying.Go(func() {
			for i := n; i < orders; i += buyers {
				order := a.buys(t, voucher.ID, a.user(i))
				a.cancels(t, order)
				ids[i] = order.ID
			}
		})
	}
	const events = 2*orders + 1 // with that of the voucher
	for kill := range kills {
		due := min(slow.taken.Load()+300, events-1)
		check.Patiently(t, fmt.Sprintf("the slow one hears on before kill %d", kill+1), func() bool { return slow.taken.Load() >= due })
		sender.restarts(t)
		if kill == kills/2 {
			alive.Store(true)
			a.replays(t, map[string]any{"since": time.Now().Add(time.Hour), "url": dead.url}, http.StatusAccepted)
		}
	}
	buying.Wait()
	for name, l := range map[string]*listener{"that was dead": dead, "that is slow": slow, "that is moody": moody} {
		check.Patiently(t, "the one "+name+" has heard all", func() bool { return l.taken.Load() >= events })
		repeated := 0
		for _, times := range l.times {
			repeated += times - 1
		}
		t.Logf("the one %s has heard %d events, and %d again", name, len(l.times), repeated)
		for _, id := range ids {
			check.Need(t, l.heard(t, id) == "order.unpaid order.canceled", "the one %s has heard of order %s: %s", name, id,
				l.heard(t, id))
		}
	}
}

// What a sale with receivers costs: one that is slow and two that are dead. Beside it: one whose only receiver has stopped,
// so that events are written and not sent, and one without events. It judges no speed.
func TestASaleWithReceivers(t *testing.T) { //nolint:paralleltest // it measures
	const orders, buyers, rounds = 6000, 64, 3
	without := launch(t, onServers(t))
	written := launch(t, onServers(t).with(hearing(listens(t, func() int { return 410 }))))
	with := launch(t, onServers(t).with(hearing(slowly(t),
		listens(t, func() int { return 503 }), listens(t, func() int { return 410 }))))
	for round := range rounds {
		for name, a := range map[string]*process{"without events": without, "not sent": written, "with three": with} {
			voucher := a.onSale(t, orders)
			began := time.Now()
			var buying sync.WaitGroup
			for n := range buyers {
				buying.Go(func() {
					for i := n; i < orders; i += buyers {
						a.buys(t, voucher.ID, a.user(round*orders+i))
					}
				})
			}
			buying.Wait()
			t.Logf("round %d, %s: %.0f orders a second", round+1, name, orders/time.Since(began).Seconds())
		}
	}
}

package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

// sighting is what somebody outside sees of one attempt to buy.
type sighting struct {
	what    string
	code    model.Code // empty: he bought
	waited  string
	orders  int64 // reserved or live afterwards
	leaving int64 // locks of his that are there afterwards
	retry   bool  // he is told when to come again
}

// outside is somebody who buys while another program, a Java service with
// Redisson, takes and gives back the user's lock.
type outside struct {
	a       *app
	voucher string
	user    string
	holders []holder // one per Redis that holds the lock
	seen    []sighting
	tried   int64 // orders of attempts that are not among what was seen
}

// turn makes the holders those of the user's lock.
func (o *outside) turn() {
	for i := range o.holders {
		o.holders[i].name = "lock:order:" + o.user
	}
}

func (o *outside) take(t *testing.T, lease time.Duration) {
	t.Helper()
	for _, h := range o.holders {
		h.take(t)
		if err := h.client.PExpire(t.Context(), h.name, lease).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func (o *outside) release(t *testing.T) {
	t.Helper()
	for _, h := range o.holders {
		h.release(t)
	}
}

// buys makes an attempt and notes what is seen of it. The wait is counted from
// since, which is asked afterwards, or from the request itself when it is nil.
func (o *outside) buys(t *testing.T, what, user string, since func() time.Time) {
	t.Helper()
	began := time.Now()
	got := o.a.call(t, http.MethodPost, "/vouchers/"+o.voucher+"/seckill", o.a.token(t, user, model.RoleUser), nil)
	answered := time.Now()
	if since != nil {
		began = since()
	}
	s := sighting{what: what, code: got.code(), orders: -o.tried, waited: wait(answered.Sub(began)), retry: got.header.Get("Retry-After") != ""}
	if s.code == "" && got.status != http.StatusCreated && got.status != http.StatusAccepted {
		t.Errorf("%s: %d %s", what, got.status, got.body)
	}
	stats := object(t, o.a.call(t, http.MethodGet, "/admin/vouchers/"+o.voucher+"/stats", o.a.admin(t), nil), http.StatusOK)
	for _, member := range []string{"reserved", "sold"} {
		n, _ := stats[member].(float64)
		s.orders += int64(n)
	}
	for _, h := range o.holders {
		s.leaving += h.client.Exists(t.Context(), h.name).Val()
	}
	o.seen = append(o.seen, s)
}

// wait tells durations apart that a client could tell apart.
func wait(d time.Duration) string {
	switch {
	case d < -50*time.Millisecond: // the holder says a little late that he has let go
		return "too early"
	case d < 250*time.Millisecond:
		return "at once"
	case d < 900*time.Millisecond:
		return "late"
	case d < 2*time.Second:
		return "the wait budget"
	}
	return d.String()
}

// atBest makes the same attempt with one user after another, at most five, and
// notes the first that was answered at once, or the last. A busy machine makes
// some of them late; what is missing makes every one late. Prepare takes the
// user's lock, if it is to be held, and returns from when on the wait is counted.
func (o *outside) atBest(t *testing.T, what string, first int, prepare func() (since func() time.Time)) {
	t.Helper()
	for n := range 5 {
		o.user = o.a.user(first + n)
		o.buys(t, what, o.user, prepare())
		last := len(o.seen) - 1
		if o.seen[last].waited == "at once" || n == 4 {
			return
		}
		if o.seen[last].code == "" {
			o.tried++
		}
		o.seen = o.seen[:last]
	}
}

// look goes through everything that the contract says of a foreign holder.
func (o *outside) look(t *testing.T) []sighting {
	t.Helper()
	free := func() func() time.Time { return nil }
	o.atBest(t, "somebody whose lock is free", 10, free)

	o.user = o.a.user(1)
	o.turn()
	o.take(t, 30*time.Second)
	o.buys(t, "while the lock is held", o.user, nil)
	o.atBest(t, "another user meanwhile", 20, free)
	o.release(t)

	o.atBest(t, "when the lock is given back", 30, func() func() time.Time {
		o.turn()
		o.take(t, 30*time.Second)
		released := make(chan time.Time, 1)
		time.AfterFunc(100*time.Millisecond, func() {
			o.release(t)
			released <- time.Now()
		})
		return func() time.Time { return <-released }
	})
	o.atBest(t, "when the lock lapses without a word", 40, func() func() time.Time {
		o.turn()
		o.take(t, 500*time.Millisecond)
		lapses := time.Now().Add(500 * time.Millisecond)
		return func() time.Time { return lapses }
	})
	o.buys(t, "who has an order already", o.user, nil)
	return o.seen
}

// In async mode a script that looks at the lock stands for taking it, where the
// lock is on the Redis of the hot copies. Nobody outside can tell: the same is
// seen as in sync mode, where the lock is really taken, in every lock mode that
// Redisson takes part in.
func TestNobodyCanTellTheLockOfTheModesApart(t *testing.T) {
	t.Parallel()
	parts := []string{testserver.Redis(t).URL(), testserver.Redis(t).URL(), testserver.Redis(t).URL()}
	want := []sighting{
		{what: "somebody whose lock is free", waited: "at once", orders: 1},
		{what: "while the lock is held", code: model.CodeLockBusy, waited: "the wait budget", orders: 1, leaving: 1, retry: true},
		{what: "another user meanwhile", waited: "at once", orders: 2, leaving: 1},
		{what: "when the lock is given back", waited: "at once", orders: 3},
		{what: "when the lock lapses without a word", waited: "at once", orders: 4},
		{what: "who has an order already", code: model.CodeAlreadyOrdered, waited: "at once", orders: 4},
	}
	orders := map[string]func(*testing.T) settings{"sync": onServers, "async": asyncOnServers}
	for _, mode := range []string{"redis", "multilock", "redlock"} {
		for _, orderMode := range sorted(orders) {
			t.Run(mode+" "+orderMode, func(t *testing.T) {
				t.Parallel()
				s := orders[orderMode](t).with(settings{"SECKILL_LOCK_MODE": mode})
				on := []string{s["SECKILL_REDIS_URL"]}
				if mode != "redis" {
					on = parts
					s["SECKILL_LOCK_REDIS_URLS"] = strings.Join(parts, ",")
				}
				a := start(t, s)
				o := &outside{a: a, voucher: a.onSale(t, 30).ID, user: a.user(1)}
				for _, url := range on {
					o.holders = append(o.holders, newHolder(t, settings{"SECKILL_REDIS_URL": url}, o.user))
				}
				for n, got := range o.look(t) {
					w := want[n]
					w.leaving *= int64(len(on))
					if got != w {
						t.Errorf("%s\n  is seen as %s\n  want       %s", got.what, fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", w))
					}
				}
			})
		}
	}
}

// A promise is not undone by somebody who takes the lock later: the lock covers
// admission, and the order appears while he holds it.
func TestAnAcceptedOrderAppearsWhileAnotherHoldsTheLock(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	a := start(t, s)
	voucher := a.onSale(t, 10)
	letGo := holdRow(t, s, voucher.ID) // nothing is persisted yet
	order := a.accepted(t, voucher.ID, a.user(1))
	h := newHolder(t, s, a.user(1))
	h.take(t)
	defer h.release(t)
	letGo()
	a.becomes(t, order, model.OrderUnpaid)
}

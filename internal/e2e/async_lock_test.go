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
	code    model.Code // empty: it is an order
	waited  string
	orders  int64 // reserved or live that it adds
	leaving int64 // locks, of whose turn it is, that are there afterwards
	retry   bool  // the answer says when to come again
}

// outside is somebody who buys while another program, a Java service with
// Redisson, takes and gives back the user's lock.
type outside struct {
	a       *app
	voucher string
	buyers  int
	holders []holder // one per Redis that holds the lock
}

// another is a user who has not bought yet.
func (o *outside) another() string {
	o.buyers++
	return o.a.user(o.buyers)
}

// turn makes the holders those of a user's lock.
func (o *outside) turn(user string) {
	for i := range o.holders {
		o.holders[i].name = "lock:order:" + user
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

// orders are those reserved or live.
func (o *outside) orders(t *testing.T) (orders int64) {
	t.Helper()
	stats := object(t, o.a.call(t, http.MethodGet, "/admin/vouchers/"+o.voucher+"/stats", o.a.admin(t), nil), http.StatusOK)
	for _, member := range []string{"reserved", "sold"} {
		n, _ := stats[member].(float64)
		orders += int64(n)
	}
	return orders
}

// buys makes an attempt and returns what is seen of it. The wait is counted from
// since, which is asked afterwards, or from the request itself when it is nil.
func (o *outside) buys(t *testing.T, user string, since func() time.Time) sighting {
	t.Helper()
	before, began := o.orders(t), time.Now()
	got := o.a.call(t, http.MethodPost, "/vouchers/"+o.voucher+"/seckill", o.a.token(t, user, model.RoleUser), nil)
	answered := time.Now()
	if since != nil {
		began = since()
	}
	s := sighting{
		code: got.code(), orders: o.orders(t) - before, waited: wait(answered.Sub(began)), retry: got.header.Get("Retry-After") != "",
	}
	if s.code == "" && got.status != http.StatusCreated && got.status != http.StatusAccepted {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for _, h := range o.holders {
		s.leaving += h.client.Exists(t.Context(), h.name).Val()
	}
	return s
}

// wait tells durations apart that a client could tell apart.
func wait(d time.Duration) string {
	switch {
	case d < -50*time.Millisecond: // the holder says a little late that it has let go
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

// sees demands what is seen of an attempt. An answer that is late changes more than the wait: the lock's wait
// budget runs out meanwhile.
func (o *outside) sees(t *testing.T, what string, want sighting, attempt func() sighting) {
	t.Helper()
	testserver.Undisturbed(t, 100*time.Millisecond, func() error {
		if got := attempt(); got != want {
			return fmt.Errorf("%s\n  is seen as %+v\n  want       %+v", what, got, want)
		}
		return nil
	})
}

// look goes through everything that the contract says of a foreign holder.
func (o *outside) look(t *testing.T) {
	t.Helper()
	var user string
	sold, locks := sighting{waited: "at once", orders: 1}, int64(len(o.holders))
	o.sees(t, "somebody whose lock is free", sold, func() sighting {
		user = o.another()
		o.turn(user)
		return o.buys(t, user, nil)
	})

	user = o.another()
	o.turn(user)
	o.sees(t, "while the lock is held", sighting{code: model.CodeLockBusy, waited: "the wait budget", leaving: locks, retry: true}, func() sighting {
		o.take(t, 30*time.Second)
		return o.buys(t, user, nil)
	})
	o.sees(t, "another user meanwhile", sighting{waited: "at once", orders: 1, leaving: locks}, func() sighting {
		return o.buys(t, o.another(), nil)
	})
	o.release(t)

	o.sees(t, "when the lock is given back", sold, func() sighting {
		user = o.another()
		o.turn(user)
		o.take(t, 30*time.Second)
		released := make(chan time.Time, 1)
		time.AfterFunc(100*time.Millisecond, func() {
			o.release(t)
			released <- time.Now()
		})
		return o.buys(t, user, func() time.Time { return <-released })
	})
	o.sees(t, "when the lock lapses without a word", sold, func() sighting {
		user = o.another()
		o.turn(user)
		o.take(t, 500*time.Millisecond)
		lapses := time.Now().Add(500 * time.Millisecond)
		return o.buys(t, user, func() time.Time { return lapses })
	})
	o.sees(t, "who has an order already", sighting{code: model.CodeAlreadyOrdered, waited: "at once"}, func() sighting {
		return o.buys(t, user, nil)
	})
}

// In async mode a script that looks at the lock stands for taking it, where the
// lock is on the Redis of the hot copies. Nobody outside can tell: the same is
// seen as in sync mode, where the lock is really taken, in every lock mode that
// Redisson takes part in.
func TestNobodyCanTellTheLockOfTheModesApart(t *testing.T) {
	t.Parallel()
	parts := []string{testserver.Redis(t).URL(), testserver.Redis(t).URL(), testserver.Redis(t).URL()}
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
				o := &outside{a: a, voucher: a.onSale(t, 30).ID}
				for _, url := range on {
					o.holders = append(o.holders, newHolder(t, settings{"SECKILL_REDIS_URL": url}, ""))
				}
				o.look(t)
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

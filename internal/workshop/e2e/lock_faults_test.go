//go:build faults

//part:locks

package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// sighting is what somebody outside sees of one attempt to buy.
type sighting struct {
	code    model.Code // empty: it is an order
	orders  int64      // reserved or live that it adds
	leaving int64      // locks, of whose turn it is, that are there afterwards
	retry   bool       // the answer says when to come again
}

// outside is a user who buys while another program, a Java service with Redisson, takes and gives back the user's lock.
type outside struct {
	a       *app
	voucher string
	buyers  int
	holders []holder // one per Redis that holds the lock
}

// another is a user who has not bought yet. The holders are those of this user's lock from now on.
func (o *outside) another() string {
	o.buyers++
	user := o.a.user(o.buyers)
	for i := range o.holders {
		o.holders[i].name = "lock:order:" + user
	}
	return user
}

func (o *outside) take(t *testing.T, lease time.Duration) {
	t.Helper()
	for _, h := range o.holders {
		h.take(t)
		check.Must(t, h.client.PExpire(t.Context(), h.name, lease).Err())
	}
}

func (o *outside) release(t *testing.T) {
	t.Helper()
	for _, h := range o.holders {
		h.release(t)
	}
}

// orders are those reserved or live.
func (o *outside) orders(t *testing.T) int64 {
	t.Helper()
	s := stats(t, o.a, o.voucher)
	return s.Reserved + s.Sold
}

// sees demands what is seen of an attempt that ask makes.
func (o *outside) sees(t *testing.T, what string, want sighting, ask func() api.Answer) {
	t.Helper()
	before := o.orders(t)
	got := ask()
	s := sighting{code: got.Code(), orders: o.orders(t) - before, retry: got.Header.Get("Retry-After") != ""}
	check.Need(t, s.code != "" || got.Sells(), "%s: %d %s", what, got.Status, got.Body)
	// One instance of a redlock may give its part back after the answer: a majority is enough for both.
	check.Eventually(t, what+": as many keys as are wanted are left behind", func() bool {
		s.leaving = 0
		for _, h := range o.holders {
			s.leaving += h.client.Exists(t.Context(), h.name).Val()
		}
		return s.leaving == want.leaving
	})
	check.That(t, s == want, "%s\n  is seen as %+v\n  want       %+v", what, s, want)
}

// buys asks until it is answered for good.
func (o *outside) buys(t *testing.T, user string) api.Answer {
	t.Helper()
	return remote.Insist(t, user, func(int) (api.Answer, error) { return o.a.Place(t, o.voucher, user) })
}

// look goes through everything that the contract says of a foreign holder.
func (o *outside) look(t *testing.T) {
	t.Helper()
	sold, locks := sighting{orders: 1}, int64(len(o.holders))
	o.sees(t, "somebody whose lock is free", sold, func() api.Answer { return o.buys(t, o.another()) })

	other, user := o.another(), o.another()
	o.take(t, time.Hour)
	o.sees(t, "while the lock is held", sighting{code: model.CodeLockBusy, leaving: locks, retry: true}, func() api.Answer {
		return o.a.Call(t, http.MethodPost, "/vouchers/"+o.voucher+"/seckill", o.a.as(t, user), nil)
	})
	o.sees(t, "another user meanwhile", sighting{orders: 1, leaving: locks}, func() api.Answer { return o.buys(t, other) })
	o.release(t)

	o.sees(t, "when the lock is given back", sold, func() api.Answer {
		user = o.another()
		o.take(t, time.Hour)
		time.AfterFunc(100*time.Millisecond, func() { o.release(t) })
		return o.buys(t, user)
	})
	o.sees(t, "when the lock lapses without a word", sold, func() api.Answer {
		user = o.another()
		o.take(t, 500*time.Millisecond)
		return o.buys(t, user)
	})
	o.sees(t, "who has an order already", sighting{code: model.CodeAlreadyOrdered}, func() api.Answer { return o.buys(t, user) })
}

// In async mode a script that looks at the lock stands for taking it, where the lock is on the Redis of the hot copies.
// Nobody outside can tell: the same is seen as in sync mode, where the lock is really taken, in every lock mode that
// Redisson takes part in.
func TestNobodyCanTellTheLockOfTheModesApart(t *testing.T) {
	t.Parallel()
	parts := []string{testserver.Redis(t).URL(), testserver.Redis(t).URL(), testserver.Redis(t).URL()}
	for _, mode := range []string{"redis", "multilock", "redlock"} {
		for orderMode, deployment := range modes() {
			t.Run(mode+" "+orderMode, func(t *testing.T) {
				t.Parallel()
				s := deployment(t).with(settings{"SECKILL_LOCK_MODE": mode})
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

// A program that takes the lock later undoes no promise: the lock covers admission, and the order appears while the
// program holds the lock.
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

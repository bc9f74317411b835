//go:build faults

//part:locks

package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

// outside is a user who buys while another program, a Java service with Redisson, takes and gives back the user's lock.
type outside struct {
	*app

	voucher string
	buyers  int
	holders []holder // one per Redis that holds the lock
}

// another is a user who has not bought yet. The holders are those of this user's lock from now on, and take it for so
// long, if that is not 0.
func (o *outside) another(t *testing.T, lease time.Duration) string {
	t.Helper()
	o.buyers++
	user := o.user(o.buyers)
	for i := range o.holders {
		o.holders[i].name = "lock:order:" + user
		if lease > 0 {
			o.holders[i].take(t)
			check.Must(t, o.holders[i].client.PExpire(t.Context(), o.holders[i].name, lease).Err())
		}
	}
	return user
}

func (o *outside) release(t *testing.T) {
	for _, h := range o.holders {
		h.release(t)
	}
}

// hears demands what a user hears who wants to buy, empty for an order, that this order and no other is there then, and
// that nothing is left of the lock, or all that was taken.
func (o *outside) hears(t *testing.T, user string, want model.Code, taken bool) {
	t.Helper()
	orders := func() int64 { s := stats(t, o.app, o.voucher); return s.Reserved + s.Sold }
	before, made := orders(), map[model.Code]int64{"": 1}[want]
	var got api.Answer
	if want == model.CodeLockBusy {
		got = o.once(t, "POST /vouchers/"+o.voucher+"/seckill", o.as(t, user), nil)
	} else {
		got = o.buy(t, o.voucher, user)
	}
	check.That(t, got.Code() == want && got.Sells() == (want == "") && orders() == before+made,
		"%s hears %d %s, of %d orders", user, got.Status, got.Body, orders()-before)
	check.Equal(t, user+" is told when to come again", got.Header.Get("Retry-After") != "", want == model.CodeLockBusy)
	// One instance of a redlock may give its part back after the answer: a majority is enough for both.
	check.Eventually(t, "as many keys as are wanted are left behind", func() bool {
		return !slices.ContainsFunc(o.holders, func(h holder) bool {
			return (h.client.Exists(t.Context(), h.name).Val() == 1) != taken
		})
	})
}

// look goes through everything that the contract says of a foreign holder.
func (o *outside) look(t *testing.T) {
	o.hears(t, o.another(t, 0), "", false)
	other, user := o.another(t, 0), o.another(t, time.Hour)
	o.hears(t, user, model.CodeLockBusy, true)
	o.hears(t, other, "", true)
	o.release(t)

	user = o.another(t, time.Hour)
	time.AfterFunc(100*time.Millisecond, func() { o.release(t) })
	o.hears(t, user, "", false)
	user = o.another(t, 500*time.Millisecond) // and lapses without a word
	o.hears(t, user, "", false)
	o.hears(t, user, model.CodeAlreadyOrdered, false)
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
				o := &outside{app: a, voucher: a.onSale(t, 30).ID}
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

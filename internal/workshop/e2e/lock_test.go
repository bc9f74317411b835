//part:races

package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// holder is another program that takes a user's lock as Redisson does.
type holder struct {
	client *redis.Client
	name   string
}

func newHolder(t *testing.T, s settings, user string) holder {
	t.Helper()
	h := holder{client: redis.NewClient(check.Value(redis.ParseURL(s["SECKILL_REDIS_URL"]))(t)), name: "lock:order:" + user}
	t.Cleanup(func() { _ = h.client.Close() })
	return h
}

// channel is where a release is told.
func (h holder) channel() string { return "redisson_lock__channel:{" + h.name + "}" }

func (h holder) take(t *testing.T) {
	t.Helper()
	check.Must(t, h.client.HSet(t.Context(), h.name, "8743c9c0-0795-4907-87fd-6c719a6b4586:1", 1).Err())
	check.Must(t, h.client.PExpire(t.Context(), h.name, 10*check.Deadline).Err()) // it lapses in no test
}

func (h holder) release(t *testing.T) {
	t.Helper()
	check.Must(t, h.client.Del(t.Context(), h.name).Err())
	check.Must(t, h.client.Publish(t.Context(), h.channel(), "0").Err())
}

// While somebody else holds a user's lock, that user hears LOCK_BUSY, and nothing is changed. Who waits long enough buys
// when it is released. (How long is waited, and how soon it is woken, package lock tells.)
func TestForeignHolderOfTheUsersLock(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	a, patient := start(t, s.with(settings{"SECKILL_LOCK_WAIT": "50ms"})), start(t, s.with(settings{"SECKILL_LOCK_WAIT": check.Deadline.String()}))
	voucher := a.onSale(t, 10)
	path, token := "/vouchers/"+voucher.ID+"/seckill", a.Token(t, a.user(1), model.RoleUser)
	h := newHolder(t, s, a.user(1))
	h.take(t)
	refused(t, a.Call(t, http.MethodPost, path, token, nil), http.StatusTooManyRequests, model.CodeLockBusy)
	if audit := a.Audit(t, voucher.ID); audit.Database.LiveOrders != 0 || audit.Database.Remaining != 10 {
		t.Errorf("LOCK_BUSY changed something: %+v", audit)
	}
	a.buys(t, voucher.ID, a.user(2)) // another user

	bought := patient.later(t, http.MethodPost, path, token)
	check.Eventually(t, "it listens for the release", func() bool {
		return h.client.PubSubNumSub(t.Context(), h.channel()).Val()[h.channel()] > 0
	})
	h.release(t)
	check.Equal(t, "a purchase after the release", check.Receive(t, "its answer", bought).Status, http.StatusCreated)
	check.Eventually(t, "no lock is left behind", func() bool { return h.client.Exists(t.Context(), h.name).Val() == 0 })
}

func TestLockIsVisibleToRedissonWhileAnOrderIsMade(t *testing.T) {
	t.Parallel()
	s := onServers(t).with(settings{"SECKILL_LOCK_LEASE": "1h"}) // the half of it passes in no test
	a := start(t, s)
	voucher := a.onSale(t, 10)
	user := a.user(1)
	h := newHolder(t, s, user)
	release := holdRow(t, s, voucher.ID)
	done := a.later(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.Token(t, user, model.RoleUser))
	var fields map[string]string
	check.Eventually(t, "the lock is there", func() bool {
		fields = h.client.HGetAll(t.Context(), h.name).Val()
		return len(fields) > 0
	})
	check.Equal(t, "fields of the lock", len(fields), 1)
	for holder, holds := range fields {
		check.Equal(t, "how often "+holder+" holds it", holds, "1")
	}
	if ttl := h.client.PTTL(t.Context(), h.name).Val(); ttl <= 30*time.Minute || ttl > time.Hour {
		t.Errorf("the lock lasts %v, want the lease of 1 h", ttl)
	}
	release()
	if got := check.Receive(t, "the answer to the purchase", done); !got.Sells() && !remote.Again(got, nil) { // the database may have lost patience
		t.Errorf("%d %s", got.Status, got.Body)
	}
	check.Eventually(t, "the lock is given back", func() bool { return h.client.Exists(t.Context(), h.name).Val() == 0 })
}

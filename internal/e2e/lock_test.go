package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/testserver"
	"seckill/model"
)

// holder is another program that takes a user's lock as Redisson does.
type holder struct {
	client *redis.Client
	name   string
}

func newHolder(t *testing.T, s settings, user string) holder {
	t.Helper()
	options, err := redis.ParseURL(s["SECKILL_REDIS_URL"])
	if err != nil {
		t.Fatal(err)
	}
	h := holder{client: redis.NewClient(options), name: "lock:order:" + user}
	t.Cleanup(func() { _ = h.client.Close() })
	return h
}

func (h holder) take(t *testing.T) {
	t.Helper()
	if err := h.client.HSet(t.Context(), h.name, "8743c9c0-0795-4907-87fd-6c719a6b4586:1", 1).Err(); err != nil {
		t.Fatal(err)
	}
	if err := h.client.PExpire(t.Context(), h.name, 30*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
}

func (h holder) release(t *testing.T) {
	t.Helper()
	if err := h.client.Del(t.Context(), h.name).Err(); err != nil {
		t.Error(err)
	}
	if err := h.client.Publish(t.Context(), "redisson_lock__channel:{"+h.name+"}", "0").Err(); err != nil {
		t.Error(err)
	}
}

func TestForeignHolderOfTheUsersLock(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	a := start(t, s)
	voucher := a.onSale(t, 10)
	h := newHolder(t, s, a.user(1))
	buy := func(user string) (answer, time.Time) {
		got := a.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", a.token(t, user, model.RoleUser), nil)
		return got, time.Now()
	}

	testserver.Undisturbed(t, 200*time.Millisecond, func() error {
		h.take(t)
		began := time.Now()
		got, answered := buy(a.user(1))
		if got.status != http.StatusTooManyRequests || got.code() != model.CodeLockBusy || got.header.Get("Retry-After") == "" {
			return fmt.Errorf("while the lock is held: %d %v %s", got.status, got.header, got.body)
		}
		waited := answered.Sub(began)
		if waited < time.Second {
			t.Fatalf("LOCK_BUSY after %v, want the wait budget of 1 s", waited)
		}
		if waited > 2*time.Second {
			return fmt.Errorf("LOCK_BUSY after %v, want the wait budget of 1 s", waited)
		}
		return nil
	})
	if audit := a.audit(t, voucher.ID); audit.Database.LiveOrders != 0 || audit.Database.Remaining != 10 {
		t.Errorf("LOCK_BUSY changed something: %+v", audit)
	}
	if other, _ := buy(a.user(2)); other.status != http.StatusCreated {
		t.Errorf("another user: %d %s", other.status, other.body)
	}

	h.release(t)
	const woken = 100 * time.Millisecond // without the message it is the next look at the key, 400 ms after the release
	buyer := 2
	testserver.Undisturbed(t, woken/2, func() error {
		buyer++
		user := a.user(buyer)
		h.name = "lock:order:" + user
		h.take(t)
		released := make(chan time.Time, 1)
		time.AfterFunc(100*time.Millisecond, func() {
			h.release(t)
			released <- time.Now()
		})
		got, answered := buy(user)
		if late := answered.Sub(<-released); got.status != http.StatusCreated || late > woken {
			return fmt.Errorf("%d %s, %v after the release", got.status, got.body, late)
		}
		return nil
	})
	if n, err := h.client.Exists(t.Context(), h.name).Result(); err != nil || n != 0 {
		t.Errorf("the lock is left behind: %d, %v", n, err)
	}
}

func TestLockIsVisibleToRedissonWhileAnOrderIsMade(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	a := start(t, s)
	voucher := a.onSale(t, 10)
	user := a.user(1)
	h := newHolder(t, s, user)
	release := holdRow(t, s, voucher.ID)

	done := make(chan answer, 1)
	go func() {
		got, err := send(a.client, http.MethodPost, a.url+"/api/v1/vouchers/"+voucher.ID+"/seckill", a.token(t, user, model.RoleUser), nil)
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	var fields map[string]string
	until(t, 10*time.Second, "the lock is there", func() bool {
		var err error
		fields, err = h.client.HGetAll(t.Context(), h.name).Result()
		return err == nil && len(fields) > 0
	})
	if len(fields) != 1 {
		t.Errorf("the lock has %d fields: %v", len(fields), fields)
	}
	for holder, holds := range fields {
		if holds != "1" {
			t.Errorf("%s holds %s times", holder, holds)
		}
	}
	if ttl := h.client.PTTL(t.Context(), h.name).Val(); ttl <= 20*time.Second || ttl > 30*time.Second {
		t.Errorf("the lock lasts %v, want the lease of 30 s", ttl)
	}
	release()
	if got := <-done; got.status != http.StatusCreated {
		t.Errorf("%d %s", got.status, got.body)
	}
	until(t, 10*time.Second, "the lock is given back", func() bool { return h.client.Exists(t.Context(), h.name).Val() == 0 })
}

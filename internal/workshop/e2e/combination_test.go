//part:sales
//part:locks

package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func lockServers(t *testing.T) (urls []string) {
	t.Helper()
	for range 3 {
		urls = append(urls, testserver.Redis(t).URL())
	}
	return urls
}

func (s settings) withLocks(mode string, several []string) (with settings, on []string) {
	with = s.with(settings{"SECKILL_LOCK_MODE": mode})
	if mode != "multilock" && mode != "redlock" {
		return with, []string{s["SECKILL_REDIS_URL"]}
	}
	with["SECKILL_LOCK_REDIS_URLS"] = strings.Join(several, ",")
	return with, several
}

// Each way to lock and each way to take stock sells exactly; the long version has all pairs, and async.
func TestEveryLockModeWithEveryStockStrategy(t *testing.T) {
	t.Parallel()
	parts := lockServers(t)
	// A database for all, and one for all in async: each has a voucher of its own.
	on, async := onServers(t), asyncOnServers(t)
	buyers := check.Count(t, "BUYERS", 16, 150) // each of them makes two attempts
	for n, lock := range []string{"redis", "multilock", "redlock", "setnx", "mysql", "none"} {
		for m, strategy := range []string{"conditional", "pessimistic", "optimistic", "async"} {
			if !check.Faults && m != n%3 {
				continue
			}
			t.Run(lock+" "+strategy, func(t *testing.T) {
				t.Parallel()
				s := on.with(settings{"SECKILL_STOCK_STRATEGY": strategy})
				if strategy == "async" {
					s = async
				}
				s, _ = s.withLocks(lock, parts)
				a := start(t, s)
				stock := buyers * 2 / 5
				c := newCrowd(a, a.onSale(t, stock).ID, start(t, s))
				names := users(a, 0, buyers)
				c.buy(t, append(names, names...), buyers)
				sold(t, a, c.voucher, c.told, stock)
			})
		}
	}
}

// holder is another program that takes a user's lock as Redisson does, on each server of the lock.
type holder struct {
	servers []*redis.Client
	name    string
}

func (h holder) each(t *testing.T, do func(server *redis.Client) error) {
	t.Helper()
	for _, server := range h.servers {
		check.Must(t, do(server))
	}
}

func (h holder) take(t *testing.T, lease time.Duration) {
	t.Helper()
	h.each(t, func(server *redis.Client) error {
		check.Must(t, server.HSet(t.Context(), h.name, "8743c9c0-0795-4907-87fd-6c719a6b4586:1", 1).Err())
		return server.PExpire(t.Context(), h.name, lease).Err()
	})
}

func (h holder) channel() string { return "redisson_lock__channel:{" + h.name + "}" }

func (h holder) release(t *testing.T) {
	t.Helper()
	h.each(t, func(server *redis.Client) error {
		check.Must(t, server.Del(t.Context(), h.name).Err())
		return server.Publish(t.Context(), h.channel(), "0").Err()
	})
}

func (h holder) held(t *testing.T) (count int64) {
	t.Helper()
	h.each(t, func(server *redis.Client) error {
		count += server.Exists(t.Context(), h.name).Val()
		return nil
	})
	return count
}

// While another program, such as a Java service with Redisson, holds a user's lock, that user hears LOCK_BUSY, nothing
// changes, and others buy. A user who waits long enough buys after its release, or its silent lapse. In async, with the
// lock on the hot copies' Redis, a script only looks at the lock, and nobody can see that. The lock covers admission: a
// promised order appears whoever holds it. (Package lock has the waits.)
func TestForeignHolderOfTheUsersLock(t *testing.T) {
	t.Parallel()
	parts := lockServers(t)
	for _, lock := range []string{"redis", "multilock", "redlock"}[:check.Count(t, "LOCKS", 1, 3)] {
		for mode, on := range modes() {
			t.Run(lock+" "+mode, func(t *testing.T) {
				t.Parallel()
				s, servers := on(t).withLocks(lock, parts)
				a := start(t, s.with(settings{"SECKILL_LOCK_WAIT": "50ms"}))
				patient := start(t, s.with(settings{"SECKILL_LOCK_WAIT": check.Deadline.String()}))
				h, voucher := holder{name: "lock:order:" + a.user(1)}, a.onSale(t, 10)
				for _, url := range servers {
					h.servers = append(h.servers, redisOf(t, settings{"SECKILL_REDIS_URL": url}))
				}
				a.buys(t, voucher.ID, a.user(2))
				path, token := "/vouchers/"+voucher.ID+"/seckill", a.as(t, a.user(1))
				h.take(t, 10*check.Deadline) // it lapses in no test
				refused(t, a.once(t, "POST "+path, token, nil), model.CodeLockBusy)
				a.buys(t, voucher.ID, a.user(3))
				audit := a.quiet(t, voucher.ID)
				check.That(t, audit.Database.Remaining == 8 && h.held(t) == int64(len(servers)),
					"%+v, held on %d servers", audit, h.held(t))

				bought := patient.later(t, http.MethodPost, path, token)
				check.Eventually(t, "it listens for the release", func() bool {
					return lock+mode != "redissync" ||
						h.servers[0].PubSubNumSub(t.Context(), h.channel()).Val()[h.channel()] > 0
				})
				h.release(t)
				got := check.Receive(t, "its answer", bought)
				check.Need(t, got.Sells(), "a purchase after the release: %d %s", got.Status, got.Body)
				check.Eventually(t, "no lock is left behind", func() bool { return h.held(t) == 0 })
				h.take(t, 10*check.Deadline)
				a.becomes(t, remote.Decode[model.Order](t, got), model.OrderUnpaid)
				h.release(t)

				h.name = "lock:order:" + a.user(4)
				h.take(t, check.Soon)
				patient.buys(t, voucher.ID, a.user(4))
				refused(t, patient.buy(t, voucher.ID, a.user(4)), model.CodeAlreadyOrdered)
				check.Eventually(t, "no lock is left behind", func() bool { return h.held(t) == 0 })
			})
		}
	}
}

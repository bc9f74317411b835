//go:build faults

//part:redis

package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
	"seckill/repository"
	"seckill/repository/sqldb"
)

// anotherRedis is why an instance with another Redis is not ready.
const anotherRedis = "another instance of this database uses another Redis"

// claim is the Redis that the database names, and when it was last used.
func claim(t *testing.T, s settings) model.RedisClaim {
	t.Helper()
	db := check.Value(sqldb.Open(t.Context(), sqldb.Options{DSN: s["SECKILL_DATABASE_DSN"], Slack: check.Deadline}))(t)
	defer db.Close()
	claim, _, err := repository.NewRedisClaims(db).Read(t.Context())
	check.Must(t, err)
	return claim
}

// Two instances of one database on different Redis servers would rebuild each
// other's hot copies for ever. The second is not ready and says why, until the first
// is gone.
func TestInstanceWithAnotherRedisIsNotReady(t *testing.T) {
	t.Parallel()
	s := asyncOnServers(t)
	first := launch(t, s)
	voucher := first.onSale(t, 30)
	promised := first.buysAll(t, voucher.ID, users(first.app, 0, 5))
	second := prepare(t, first.path, s.with(settings{"SECKILL_REDIS_URL": testserver.Redis(t).URL()}))
	second.start(t)
	refused := func() bool {
		got, err := second.Get("/readyz")
		return err == nil && got.Status == http.StatusServiceUnavailable && strings.Contains(string(got.Body), anotherRedis)
	}
	check.Patiently(t, "the second says why it is not ready", refused)
	const longer = 7 * time.Second // than an abandoned claim is respected
	from := claim(t, s)
	check.Patiently(t, "the first has used its Redis for long", func() bool {
		second.refuses(t, voucher.ID, second.user(100))
		if !refused() {
			t.Fatal("the second does not say any more that it is not ready")
		}
		return claim(t, s).RenewedAt.Sub(from.RenewedAt) > longer // by the database's clock
	})
	first.ready(t)
	if said := first.output.String(); strings.Contains(said, "rebuilding a hot copy") || strings.Contains(said, anotherRedis) {
		t.Errorf("the first was disturbed:\n%s", tail(said, 20))
	}
	check.Equal(t, "times that the second says it in its log", strings.Count(second.output.String(), "because\":\""+anotherRedis), 1)
	first.kept(t, voucher.ID, promised)

	first.kill()
	last := claim(t, s)
	second.awaitReady(t)
	if taken := claim(t, s); taken.Identity == last.Identity {
		t.Errorf("it is ready, and %+v is still the Redis", taken)
	}
	order := second.accepted(t, voucher.ID, second.user(200))
	promised[order.ID] = order.UserID
	second.conserved(t, voucher.ID, promised)
}

// A Redis that restarts is another one to nobody but those who never used it: its
// instance goes on when Redis is back.
func TestRestartedRedisIsTheOneOfItsInstances(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnRedis(t)
	p := launch(t, s)
	voucher := p.onSale(t, 10)
	promised := map[string]string{}
	sells := func(n int) {
		order := p.accepted(t, voucher.ID, p.user(n))
		promised[order.ID] = order.UserID
	}
	for n := range 2 {
		own.Kill()
		own.Start()
		p.awaitReady(t)
		sells(n)
		check.Eventually(t, "the database names the restarted Redis", func() bool {
			return strings.Count(p.output.String(), "this instance uses the Redis of its database") == n+2
		})
	}
	p.kill()
	p.start(t) // with the same Redis
	p.awaitReady(t)
	sells(2)
	p.kept(t, voucher.ID, promised)
	if said := p.output.String(); strings.Contains(said, anotherRedis) {
		t.Errorf("it takes its Redis for another one:\n%s", tail(said, 20))
	}
}

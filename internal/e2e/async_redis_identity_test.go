package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/repository"
)

// readiness is what /readyz says.
func (a *app) readiness(t *testing.T) (status int, reasons string) {
	t.Helper()
	got, err := send(a.client, http.MethodGet, a.url+"/readyz", "", nil)
	if err != nil {
		return 0, err.Error()
	}
	return got.status, string(got.body)
}

// staysReady fails the test when a program on a machine that runs is not ready. A check of readiness gives up after a
// second, so that a machine that stands still for as long is not ready once.
func (p *process) staysReady(t *testing.T) {
	t.Helper()
	testserver.Undisturbed(t, 500*time.Millisecond, func() error {
		if status, reasons := p.readiness(t); status != http.StatusOK {
			return fmt.Errorf("not ready: %d %s", status, reasons)
		}
		return nil
	})
}

// claim is the Redis that the database names, and when it was last used.
func claim(t *testing.T, s settings) repository.RedisClaim {
	t.Helper()
	db := check.Value(repository.Open(t.Context(), repository.Options{DSN: s["SECKILL_DATABASE_DSN"]}))(t)
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
	promised := map[string]string{}
	for n := range 5 {
		order := first.accepted(t, voucher.ID, first.user(n))
		promised[order.ID] = order.UserID
	}
	second := prepare(t, first.path, s.with(settings{"SECKILL_REDIS_URL": testserver.Redis(t).URL()}))
	second.start(t)
	const reason = "another instance of this database uses another Redis"
	until(t, 10*time.Second, "the second says why it is not ready", func() bool {
		status, reasons := second.readiness(t)
		return status == http.StatusServiceUnavailable && strings.Contains(reasons, reason)
	})
	for n := 5; n < 20; n++ { // longer than an abandoned claim is respected
		if got, err := second.place(t, voucher.ID, second.user(100+n)); err != nil || got.status != http.StatusServiceUnavailable {
			t.Errorf("on the other Redis: %d %s, %v", got.status, got.body, err)
		}
		order := first.accepted(t, voucher.ID, first.user(n))
		promised[order.ID] = order.UserID
		<-time.After(500 * time.Millisecond)
		if status, reasons := second.readiness(t); status != http.StatusServiceUnavailable || !strings.Contains(reasons, reason) {
			t.Errorf("the second: %d %s", status, reasons)
		}
	}
	first.staysReady(t)
	if said := first.output.String(); strings.Contains(said, "rebuilding a hot copy") || strings.Contains(said, reason) {
		t.Errorf("the first was disturbed:\n%s", tail(said, 20))
	}
	if n := strings.Count(second.output.String(), "because\":\""+reason); n != 1 {
		t.Errorf("the second says it %d times in its log", n)
	}
	if got := stats(t, first.app, voucher.ID); got.Sold+got.Reserved != 20 {
		t.Errorf("%+v", got)
	}
	unbroken(t, first.conserved(t, voucher.ID, promised), promised)

	// The second looks five times, a second apart, before it takes the place of the first; a look that is late for more
	// than a second comes together with the next one.
	const respected = 4 * time.Second
	testserver.Undisturbed(t, 900*time.Millisecond, func() error {
		first.kill()
		last := claim(t, s)
		second.awaitReady(t)
		taken := claim(t, s)
		if waited := taken.RenewedAt.Sub(last.RenewedAt); taken.Identity == last.Identity || waited < respected {
			first.start(t)
			first, second = second, first
			return fmt.Errorf("the place of %+v was taken after %v: %+v, want %v", last, waited, taken, respected)
		}
		return nil
	})
	until(t, settlement, "it sells", func() bool {
		got, err := second.place(t, voucher.ID, second.user(200))
		return err == nil && (got.status == http.StatusAccepted || got.code() == model.CodeAlreadyOrdered)
	})
	second.conserved(t, voucher.ID, promised)
}

// A Redis that restarts is another one to nobody but those who never used it: its
// instance is not unready for longer than Redis is away.
func TestRestartedRedisIsTheOneOfItsInstances(t *testing.T) {
	t.Parallel()
	own, s := asyncOnOwnServers(t)
	p := launch(t, s)
	for range 2 {
		testserver.Undisturbed(t, 500*time.Millisecond, func() error {
			own.redis.Kill()
			own.redis.Start()
			began := time.Now()
			p.awaitReady(t)
			if took := time.Since(began); took > 3*time.Second {
				return fmt.Errorf("not ready for %v", took)
			}
			return nil
		})
		for range 30 {
			p.staysReady(t)
			<-time.After(100 * time.Millisecond)
		}
	}
	p.kill()
	p.start(t) // with the same Redis
	began := time.Now()
	p.awaitReady(t)
	t.Logf("ready again after %v", time.Since(began))
}

package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

func TestEmbeddedOrdersSurviveARestart(t *testing.T) {
	t.Parallel()
	s := embeddedSettings(t)
	first := launch(t, s)
	voucher := first.onSale(t, 2)
	user := first.user(1)
	got := first.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", first.token(t, user, model.RoleUser), nil)
	if got.status != http.StatusCreated {
		t.Fatalf("%d %s", got.status, got.body)
	}
	order := decode[model.Order](t, got)
	first.kill() // kill -9: nothing may be left to a clean end

	second := launch(t, s)
	got = second.call(t, http.MethodGet, "/orders/"+order.ID, second.token(t, user, model.RoleUser), nil)
	if got.status != http.StatusOK || decode[model.Order](t, got).ID != order.ID {
		t.Errorf("after the restart: %d %s", got.status, got.body)
	}
	got = second.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", second.token(t, user, model.RoleUser), nil)
	if p := decode[problem](t, got); p.Code != model.CodeAlreadyOrdered || p.OrderID != order.ID {
		t.Errorf("again after the restart: %d %s", got.status, got.body)
	}
}

func TestSecondInstanceWithAnEmbeddedRedisIsNotReady(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	delete(s, "SECKILL_REDIS_URL")
	first, second := start(t, s), start(t, s)
	ready := func(a *app) answer {
		got, err := send(a.client, http.MethodGet, a.url+"/readyz", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	until(t, 5*time.Second, "exactly one is ready", func() bool {
		return (ready(first).status == http.StatusOK) != (ready(second).status == http.StatusOK)
	})
	for range 10 {
		one, other := ready(first), ready(second)
		if one.status != http.StatusOK {
			one, other = other, one
		}
		if one.status != http.StatusOK || other.status != http.StatusServiceUnavailable {
			t.Fatalf("readyz: %d and %d", one.status, other.status)
		}
		if other.code() != model.CodeUnavailable || !strings.Contains(string(other.body), "SECKILL_REDIS_URL") {
			t.Errorf("it does not say why: %s", other.body)
		}
	}
}

func TestStartSaysWhichDependencyIsMissing(t *testing.T) {
	t.Parallel()
	gone := testserver.Redis(t)
	gone.Kill()
	for name, more := range map[string]settings{
		"SECKILL_REDIS_URL":    {"SECKILL_REDIS_URL": gone.URL()},
		"SECKILL_DATABASE_DSN": {"SECKILL_DATABASE_DSN": "nobody:secret@tcp(" + gone.Addr() + ")/nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := begin(t, onServers(t).with(more))
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v does not name %s", err, name)
			}
			if err != nil && strings.Contains(err.Error(), "secret@") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

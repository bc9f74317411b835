package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestEmbeddedOrdersSurviveARestart(t *testing.T) {
	t.Parallel()
	s := embeddedSettings(t)
	first := launch(t, s)
	voucher := first.onSale(t, 2)
	user := first.user(1)
	order := first.buys(t, voucher.ID, user)
	first.kill() // kill -9: nothing may be left to a clean end

	second := launch(t, s)
	got := second.asks(t, order, http.MethodGet, "")
	if got.Status != http.StatusOK || remote.Decode[model.Order](t, got).ID != order.ID {
		t.Errorf("after the restart: %d %s", got.Status, got.Body)
	}
	got = second.Call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", second.Token(t, user, model.RoleUser), nil)
	if p := remote.Decode[api.Problem](t, got); p.Code != model.CodeAlreadyOrdered || p.OrderID != order.ID {
		t.Errorf("again after the restart: %d %s", got.Status, got.Body)
	}
}

func TestSecondInstanceWithAnEmbeddedRedisIsNotReady(t *testing.T) {
	t.Parallel()
	s := onServers(t)
	delete(s, "SECKILL_REDIS_URL")
	first, second := start(t, s), start(t, s)
	check.Eventually(t, "exactly one is ready", func() bool {
		return (first.Status("/readyz") == http.StatusOK) != (second.Status("/readyz") == http.StatusOK)
	})
	other := second
	if second.Status("/readyz") == http.StatusOK {
		other = first
	}
	got := check.Value(other.Get("/readyz"))(t)
	if got.Code() != model.CodeUnavailable || !strings.Contains(string(got.Body), "SECKILL_REDIS_URL") {
		t.Errorf("it does not say why: %s", got.Body)
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

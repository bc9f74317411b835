package e2e_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestInstanceThatDoesNotMigrateIsReadyOnceSomebodyHas(t *testing.T) {
	t.Parallel()
	s := onServers(t).with(settings{"SECKILL_MIGRATE": "off"})
	a := start(t, s)
	if got, err := send(a.client, http.MethodGet, a.url+"/readyz", "", nil); err != nil || got.status != http.StatusServiceUnavailable || !strings.Contains(string(got.body), "seckill migrate") {
		t.Fatalf("on an empty schema: %d %s, %v", got.status, got.body, err)
	}
	operate(t, s, "", "migrate")
	a.ready(t)
	a.onSale(t, 1)
}

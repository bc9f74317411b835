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
	if got, err := a.Get("/readyz"); err != nil || got.Status != http.StatusServiceUnavailable || !strings.Contains(string(got.Body), "seckill migrate") {
		t.Fatalf("on an empty schema: %d %s, %v", got.Status, got.Body, err)
	}
	operate(t, s, "", "migrate")
	a.ready(t)
	a.onSale(t, 1)
}

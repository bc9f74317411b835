package e2e_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/repository"
)

func TestInstanceThatDoesNotMigrateIsReadyOnceSomebodyHas(t *testing.T) {
	t.Parallel()
	s := onServers(t).with(settings{"SECKILL_MIGRATE": "off"})
	a := start(t, s)
	got, err := send(a.client, http.MethodGet, a.url+"/readyz", "", nil)
	if err != nil || got.status != http.StatusServiceUnavailable || !strings.Contains(string(got.body), "seckill migrate") {
		t.Fatalf("on an empty schema: %d %s, %v", got.status, got.body, err)
	}
	db, err := repository.Open(t.Context(), repository.Options{DSN: s["SECKILL_DATABASE_DSN"], Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, 10*time.Second, "it is ready", func() bool { return a.status(t, "/readyz") == http.StatusOK })
	a.onSale(t, 1)
}

package handler_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/model"
)

// impatient puts the handler behind a listener that gives an answer little
// time, as the real one does in proportion.
func (s *server) impatient(t *testing.T, writeTimeout time.Duration) {
	t.Helper()
	listener := httptest.NewUnstartedServer(s.handler)
	listener.Config.WriteTimeout = writeTimeout
	listener.Start()
	t.Cleanup(listener.Close)
	s.url = listener.URL
}

// pass lets time go by, unless nobody waits any more.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestWaitOutlastsTheWriteTimeout: a client that asked to wait is answered.
func TestWaitOutlastsTheWriteTimeout(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.impatient(t, 200*time.Millisecond)
	s.fakes.getOrder = func(ctx context.Context, _, orderID string, wait time.Duration) (model.Order, error) {
		return model.Order{ID: orderID, Status: model.OrderUnpaid}, pass(ctx, wait)
	}
	got := s.do(t, http.MethodGet, "/api/v1/orders/o1.v1?wait=500ms", "", s.as(t, "u", model.RoleUser)...)
	if got.status != http.StatusOK || !strings.Contains(got.body, "o1.v1") {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// TestExportOutlastsTheWriteTimeout as long as it moves on.
func TestExportOutlastsTheWriteTimeout(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.impatient(t, 200*time.Millisecond)
	s.fakes.each = func(ctx context.Context, _ model.OrderQuery, row func(model.Order) error) error {
		for i := range 2001 {
			if err := row(model.Order{ID: "o" + strconv.Itoa(i)}); err != nil {
				return err
			}
			if i%1000 == 999 {
				if err := pass(ctx, 250*time.Millisecond); err != nil {
					return err
				}
			}
		}
		return nil
	}
	got := s.do(t, http.MethodGet, exported, "", s.as(t, "a", model.RoleAdmin)...)
	if got.status != http.StatusOK || strings.Count(got.body, "\n") != 2002 {
		t.Errorf("%d, %d lines", got.status, strings.Count(got.body, "\n"))
	}
}

package command

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestRoles(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	api, cfg := started(t, append(environ, "SECKILL_ROLE=api")...)
	s := counter(t, api, cfg)
	voucher := s.putUp(t, 2)
	alice := s.as(t, "alice", model.RoleUser)
	a := buy(t.Context(), alice, voucher)
	if a.status != http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
	var now model.Order
	if err := alice.request(t.Context(), http.MethodGet, "/orders/"+a.order.ID+"?wait=1s", nil, decode(&now)); err != nil || now.Status != model.OrderProcessing {
		t.Errorf("nobody works, and the order is %+v, %v", now, err)
	}
	worker, _ := started(t, append(environ, "SECKILL_ROLE=worker")...)
	if order, err := awaitOrder(t.Context(), alice, now); err != nil || order.Status != model.OrderUnpaid {
		t.Errorf("%+v, %v", order, err)
	}
	if status, body := ready(t, worker.BaseURL()); status != http.StatusOK || !strings.Contains(body, "queue") {
		t.Errorf("the worker's health: %d %s", status, body)
	}
	visitor := client(t)
	for url, want := range map[string]string{
		worker.BaseURL() + "/livez": "200 ok", worker.BaseURL() + "/api/v1/vouchers": "404 NOT_FOUND",
		// The message is acknowledged, and counted, after the buyer has heard of the order.
		worker.OpsURL() + "/metrics":         `200 seckill_queue_messages_total{result="acked"} 1`,
		worker.OpsURL() + "/metrics?backlog": "200 seckill_backlog_known 1",
	} {
		check.Eventually(t, url+" says "+want, func() bool {
			response, err := visitor.Get(url)
			check.Must(t, err)
			body := check.Value(io.ReadAll(response.Body))(t)
			_ = response.Body.Close()
			status, part, _ := strings.Cut(want, " ")
			return strconv.Itoa(response.StatusCode) == status && strings.Contains(string(body), part)
		})
	}
}

// What is embedded beside a real database allows one instance: the second is not
// ready, sells nothing, and leaves the first one's hot copies alone.
func TestSecondInstanceWithEmbeddedPartsSellsNothing(t *testing.T) {
	t.Parallel()
	environ := []string{
		"SECKILL_ORDER_MODE=async", "SECKILL_DATABASE_DSN=" + testserver.Schema(t), "SECKILL_JWT_SECRET=a secret of the tests, 32 bytes or more",
	}
	first, cfg := started(t, environ...)
	s := counter(t, first, cfg)
	check.Eventually(t, "the first is ready", func() bool { status, _ := ready(t, first.BaseURL()); return status == http.StatusOK })
	voucher := s.putUp(t, 5)
	s.persisted(t, "alice", voucher)

	second, _ := started(t, environ...)
	status, body := ready(t, second.BaseURL())
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "SECKILL_REDIS_URL and SECKILL_NATS_URL") {
		t.Errorf("the second: %d %s", status, body)
	}
	bob := s.as(t, "bob", model.RoleUser)
	bob.base = second.BaseURL()
	for range 3 {
		if a, _ := press(t.Context(), bob, voucher); a.status != http.StatusServiceUnavailable {
			t.Errorf("the second sells: %+v", a)
		}
	}
	s.persisted(t, "carol", voucher)
	if audit, err := s.as(t, "admin", model.RoleAdmin).audit(t.Context(), voucher); err != nil || !audit.Balanced || audit.Redis.Buyers != 2 {
		t.Errorf("the audit: %+v, %v", audit, err)
	}
}

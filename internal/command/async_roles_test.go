package command

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestRoles(t *testing.T) {
	t.Parallel()
	environ := asyncEnviron(t)
	api, cfg := started(t, append(environ, "SECKILL_ROLE=api")...)
	s := counterOf(t, api, cfg)
	voucher := s.putUp(t, 2)
	id := remote.Decode[model.Order](t, s.buys(t, "alice", voucher)).ID
	now := s.Call(t, http.MethodGet, "/orders/"+id+"?wait=1s", s.Token(t, "alice", model.RoleUser), nil)
	check.Equal(t, "the order while nobody works", remote.Decode[model.Order](t, now).Status, model.OrderProcessing)
	secretless := slices.DeleteFunc(slices.Clone(environ), func(set string) bool { return strings.HasPrefix(set, "SECKILL_JWT_SECRET=") })
	worker, _ := started(t, append(secretless, "SECKILL_ROLE=worker")...)
	check.Equal(t, "the order once somebody does", s.awaited(t, "alice", id).Status, model.OrderUnpaid)
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
	s := counterOf(t, first, cfg)
	check.Eventually(t, "the first is ready", func() bool { status, _ := ready(t, first.BaseURL()); return status == http.StatusOK })
	voucher := s.putUp(t, 5)
	s.persisted(t, "alice", voucher)

	second, _ := started(t, environ...)
	status, body := ready(t, second.BaseURL())
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "SECKILL_REDIS_URL and SECKILL_NATS_URL") {
		t.Errorf("the second: %d %s", status, body)
	}
	stray := s
	stray.URL = second.BaseURL()
	for range 3 {
		check.Equal(t, "the second sells", check.Value(stray.Place(t, voucher, "bob"))(t).Status, http.StatusServiceUnavailable)
	}
	s.persisted(t, "carol", voucher)
	if audit := s.Audit(t, voucher); !audit.Balanced || audit.Redis.Buyers != 2 {
		t.Errorf("the audit: %+v", audit)
	}
}

package handler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"seckill/handler"
	"seckill/internal/workshop/check"
	"seckill/model"
	"seckill/service"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.checks = []service.Check{{Name: "database"}, {Name: "redis"}}
	got := s.do(t, http.MethodGet, "/readyz", "")
	got.is(t, http.StatusOK)
	check.Equal(t, "the type", got.header.Get("Content-Type"), "application/json")
	check.Equal(t, "the answer", got.body, `{
  "status": "ready",
  "checks": {
    "database": "ok",
    "redis": "ok"
  },
  "build": {
    "version": "v1.2.0",
    "commit": "35879b0",
    "go": "go1.26.8"
  }
}
`)
	s.fakes.checks = []service.Check{
		{Name: "database", Err: errors.New("dial tcp 10.1.2.3:3306")},
		{Name: "mode", Err: model.Unavailable("This instance is sync, the database async.", nil)},
		{Name: "redis"},
	}
	got = s.do(t, http.MethodGet, "/readyz", "")
	p := wantProblem(t, got, http.StatusServiceUnavailable, model.CodeUnavailable)
	want := map[string]string{
		"database": "cannot be reached", "mode": "This instance is sync, the database async.",
		"redis": "ok",
	}
	check.That(t, maps.Equal(p.Checks, want) && got.header.Get("Retry-After") != "" && p.Build.Version == "v1.2.0",
		"%v %s", got.header, got.body)
	s.do(t, http.MethodGet, "/livez", "").is(t, http.StatusOK)
}

// A proxy that asked for it gets a request back undone; strangers are not obeyed, and health checks answer truly.
func TestUnreadyInstanceHandsOver(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]*server{"@elsewhere": setup(t, behindProxies), "": setup(t)} {
		ask := func(path string) string {
			return s.do(t, http.MethodGet, path, "", "X-Unready", "@elsewhere").header.Get("X-Accel-Redirect")
		}
		check.Equal(t, "of a ready instance", ask("/api/v1/vouchers"), "")
		s.fakes.checks = []service.Check{{
			Name: "mode",
			Err:  model.Unavailable("This instance is sync, the database async.", nil),
		}}
		check.Equal(t, "of another", ask("/api/v1/vouchers"), want)
		check.Equal(t, "of one that is checked", ask("/readyz"), "")
	}
}

// TestClientGone: a request whose client has gone is not counted as a 500.
func TestClientGone(t *testing.T) {
	t.Parallel()
	s := setup(t)
	arrived, left := make(chan struct{}), make(chan struct{})
	s.fakes.place = func(ctx context.Context, _, _ string) (model.Order, error) {
		close(arrived)
		<-ctx.Done()
		close(left)
		return model.Order{}, ctx.Err()
	}
	ctx, hangUp := context.WithCancel(t.Context())
	go func() {
		<-arrived
		hangUp()
	}()
	request := s.request(t, ctx, http.MethodPost, seckill, nil, s.as(t, "u", model.RoleUser)...)
	if response, err := http.DefaultTransport.RoundTrip(request); err == nil {
		response.Body.Close()
		t.Fatal("an answer arrived")
	}
	<-left
	check.Eventually(t, "the client counts as gone", func() bool {
		return strings.Contains(s.metrics(t), `code="499",method="POST",route="/api/v1/vouchers/:id/seckill"`)
	})
	check.That(t, !strings.Contains(s.metrics(t), `code="5`) && !strings.Contains(s.log.String(), `"level":"ERROR"`),
		"a client that hung up counts as a failure of ours")
}

func (s *server) metrics(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, family := range check.Value(s.registry.Gather())(t) {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				text.WriteString(label.GetName() + `="` + label.GetValue() + `",`)
			}
			fmt.Fprintln(&text, metric.GetHistogram().GetSampleCount())
		}
	}
	return text.String()
}

// TestMetricsStayFew: labels never hold what a client makes up.
func TestMetricsStayFew(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for i := range 20 {
		n := strconv.Itoa(i)
		s.do(t, http.MethodGet, "/api/v1/vouchers/v"+n, "")
		s.do(t, http.MethodGet, "/nowhere/"+n, "")
		s.do(t, "BREW"+n, "/api/v1/vouchers/v"+n, "")
	}
	series := s.metrics(t)
	check.That(t, strings.Count(series, "\n") == 3, "series:\n%s", series)
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	s := setup(t)
	got := s.do(t, http.MethodPost, seckill, "", s.as(t, "u7", model.RoleUser)...)
	check.Eventually(t, "the request is logged", func() bool {
		return s.log.Has(`"level":"DEBUG"`, `"msg":"request"`, `"request_id":"`+got.header.Get("X-Request-Id")+`"`, `"code":"201"`,
			`"user_id":"u7"`, `"method":"POST"`, `"path":"`+seckill+`"`, `"took":`)
	})
	check.That(t, !strings.Contains(s.log.String(), "Bearer"), "a token is in the log")
}

func TestOperations(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.do(t, http.MethodGet, "/livez", "")
	operations := handler.NewOperations(s.registry)
	for path, want := range map[string]string{
		"/metrics": "seckill_http_request_duration_seconds", "/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile",
		"/debug/pprof/cmdline": "",
	} {
		got := record(t, operations, http.MethodGet, path)
		got.is(t, http.StatusOK)
		check.That(t, strings.Contains(got.body, want), "%s: %s", path, got.body)
	}
	record(t, operations, http.MethodGet, "/api/v1/vouchers").is(t, http.StatusNotFound)
}

// How long somebody watches is no duration of a request; what ends without a stream is one, at the same path.
func TestStreamsAreNoSlowRequests(t *testing.T) {
	t.Parallel()
	s := setup(t, func(options *handler.Options) {
		options.Console = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/events") {
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				_, _ = w.Write([]byte("data: {}\n\n"))
				_ = http.NewResponseController(w).Flush()
			}
		})
	})
	got := s.do(t, http.MethodGet, "/console/vouchers/v1/events", "")
	check.Need(t, strings.Contains(got.body, "data:"), "%d %s", got.status, got.body)
	s.do(t, http.MethodGet, "/console/vouchers/v1", "")
	check.Eventually(t, "both are in the log",
		func() bool { return strings.Count(s.log.String(), `"msg":"request"`) == 2 })
	check.Equal(t, "what is counted", s.metrics(t), `code="200",method="GET",route="/console/*path",1`+"\n")
}

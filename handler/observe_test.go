package handler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	if got.status != http.StatusOK || got.header.Get("Content-Type") != "application/json" ||
		!strings.Contains(got.body, "\n    \"database\": \"ok\",\n    \"redis\": \"ok\"\n") {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
	const build = `"build": {
    "version": "v1.2.0",
    "commit": "35879b0",
    "go": "go1.26.8"
  }`
	if !strings.Contains(got.body, build) {
		t.Errorf("it does not say which build runs: %s", got.body)
	}
	s.fakes.checks = []service.Check{
		{Name: "database", Err: errors.New("dial tcp 10.1.2.3:3306")},
		{Name: "mode", Err: model.Unavailable("This instance is sync, the database async.", nil)},
		{Name: "redis"},
	}
	got = s.do(t, http.MethodGet, "/readyz", "")
	p := wantProblem(t, got, http.StatusServiceUnavailable, model.CodeUnavailable)
	if p.Checks["database"] != "cannot be reached" || p.Checks["mode"] != "This instance is sync, the database async." || p.Checks["redis"] != "ok" || got.header.Get("Retry-After") == "" || p.Build.Version != "v1.2.0" {
		t.Errorf("%v %s", got.header, got.body)
	}
	if live := s.do(t, http.MethodGet, "/livez", ""); live.status != http.StatusOK {
		t.Errorf("livez: %d", live.status)
	}
}

// An instance that is not ready leaves a request to the proxy that asked for that, undone; a stranger is not obeyed,
// and health checks have their true answer.
func TestUnreadyInstanceHandsOver(t *testing.T) {
	t.Parallel()
	for name, proxied := range map[string]bool{"behind a proxy": true, "a stranger": false} {
		var options []func(*handler.Options)
		if proxied {
			options = append(options, behindProxies)
		}
		s := setup(t, options...)
		ask := func(path string) string {
			return s.do(t, http.MethodGet, path, "", "X-Unready", "@elsewhere").header.Get("X-Accel-Redirect")
		}
		check.Equal(t, name+" of a ready instance", ask("/api/v1/vouchers"), "")
		s.fakes.checks = []service.Check{{Name: "mode", Err: model.Unavailable("This instance is sync, the database async.", nil)}}
		want := map[bool]string{true: "@elsewhere"}[proxied]
		check.Equal(t, name, ask("/api/v1/vouchers"), want)
		check.Equal(t, name+" that checks", ask("/readyz"), "")
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
	if strings.Contains(s.metrics(t), `code="5`) || strings.Contains(s.log.String(), `"level":"ERROR"`) {
		t.Error("a client that hung up counts as a failure of ours")
	}
}

func (s *server) metrics(t *testing.T) string {
	t.Helper()
	var text bytes.Buffer
	families := check.Value(s.registry.Gather())(t)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for i, label := range metric.GetLabel() {
				if i > 0 {
					text.WriteByte(',')
				}
				text.WriteString(label.GetName() + `="` + label.GetValue() + `"`)
			}
			text.WriteByte('\n')
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
	if series := s.metrics(t); strings.Count(series, "\n") != 3 {
		t.Errorf("series:\n%s", series)
	}
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.fakes.place = sold
	got := s.do(t, http.MethodPost, seckill, "", s.as(t, "u7", model.RoleUser)...)
	check.Eventually(t, "the request is logged", func() bool { return strings.Contains(s.log.String(), `"msg":"request"`) })
	var line map[string]any
	check.Must(t, json.Unmarshal([]byte(strings.TrimSpace(s.log.String())), &line))
	if line["request_id"] != got.header.Get("X-Request-Id") || line["code"] != "201" || line["user_id"] != "u7" ||
		line["method"] != "POST" || line["path"] != seckill || line["level"] != "DEBUG" || line["took"] == nil {
		t.Errorf("%v", line)
	}
	if strings.Contains(s.log.String(), "Bearer") {
		t.Error("a token is in the log")
	}
}

func TestOperations(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.do(t, http.MethodGet, "/livez", "")
	operations := handler.NewOperations(s.registry)
	for _, test := range []struct {
		path, want string
		status     int
	}{
		{"/metrics", "seckill_http_request_duration_seconds", http.StatusOK},
		{"/debug/pprof/", "goroutine", http.StatusOK},
		{"/debug/pprof/goroutine?debug=1", "goroutine profile", http.StatusOK},
		{"/debug/pprof/cmdline", "", http.StatusOK},
		{"/api/v1/vouchers", "", http.StatusNotFound},
	} {
		got := record(t, operations, http.MethodGet, test.path)
		if got.status != test.status || !strings.Contains(got.body, test.want) {
			t.Errorf("%s: %d", test.path, got.status)
		}
	}
}

// TestStreamsAreNoSlowRequests: how long somebody watches is no duration of a request. What
// ends without a stream is one, at the same path.
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
	if got := s.do(t, http.MethodGet, "/console/vouchers/v1/events", ""); !strings.Contains(got.body, "data:") {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s.do(t, http.MethodGet, "/console/vouchers/v1", "")
	check.Eventually(t, "the page is counted, and the stream is not", func() bool {
		families := check.Value(s.registry.Gather())(t)
		counted := uint64(0)
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if family.GetName() == "seckill_http_request_duration_seconds" {
					counted += metric.GetHistogram().GetSampleCount()
				}
			}
		}
		return counted == 1
	})
	check.Eventually(t, "both are in the log", func() bool { return strings.Count(s.log.String(), `"msg":"request"`) == 2 })
}

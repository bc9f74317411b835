package e2e_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestListeners: what is for operators is not for clients, and the other way
// round.
func TestListeners(t *testing.T) {
	t.Parallel()
	within(t, "sync on servers", checkListeners)
}

func checkListeners(t *testing.T, a shop) {
	t.Helper()
	get := func(url string) answer { return check.Value(send(a.client, http.MethodGet, url, "", nil))(t) }
	for path, want := range map[string]string{"/metrics": "seckill_http_request_duration_seconds", "/debug/pprof/": "goroutine", "/debug/pprof/heap?debug=1": "heap profile"} {
		get(a.url + "/api/v1/vouchers")
		if got := get(a.ops + path); got.status != http.StatusOK || !strings.Contains(string(got.body), want) {
			t.Errorf("operations %s: %d", path, got.status)
		}
		refused(t, get(a.url+path), http.StatusNotFound, model.CodeNotFound)
	}
	if got := get(a.ops + "/api/v1/vouchers"); got.status != http.StatusNotFound {
		t.Errorf("the API is on the operations listener: %d", got.status)
	}
	live, ready := get(a.url+"/livez"), get(a.url+"/readyz")
	if live.status != http.StatusOK || ready.status != http.StatusOK || len(strings.Split(strings.TrimSpace(string(ready.body)), "\n")) < 3 {
		t.Errorf("%d %d %s", live.status, ready.status, ready.body)
	}
	docs := get(a.url + "/api/v1/docs")
	if docs.status != http.StatusOK || !strings.HasPrefix(docs.header.Get("Content-Type"), "text/html") || strings.Contains(string(docs.body), "//") && strings.Contains(string(docs.body), "https://") {
		t.Errorf("%d %s", docs.status, docs.body)
	}
	for n, path := range []string{"/livez", "/api/v1/vouchers", "/nowhere"} {
		id := "trace-" + strconv.Itoa(n)
		got, err := send(a.client, http.MethodGet, a.url+path, "", nil, "X-Request-Id: "+id)
		if err != nil || got.header.Get("X-Request-Id") != id {
			t.Errorf("%s: %v %v", path, got.header, err)
		}
	}
}

// The server as a whole, the target * of HTTP, is no way around what every request gets: an
// id, the limits, a place in the metrics.
func TestTheServerAsAWhole(t *testing.T) {
	t.Parallel()
	a := start(t, embeddedSettings(t).with(settings{"SECKILL_RATE_ADDR": "5/h"}))
	ask := func(url string) answer {
		request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodOptions, url, nil))(t)
		request.URL.Path = "*"
		request.Header.Set("X-Request-Id", "of-the-whole")
		response, err := a.client.Do(request)
		check.Must(t, err)
		defer response.Body.Close()
		return answer{response.StatusCode, response.Header, check.Value(io.ReadAll(response.Body))(t)}
	}
	got := ask(a.url)
	refused(t, got, http.StatusNotFound, model.CodeNotFound)
	check.Equal(t, "its id", got.header.Get("X-Request-Id"), "of-the-whole")
	for range 4 {
		got = ask(a.url)
	}
	refused(t, got, http.StatusNotFound, model.CodeNotFound)
	refused(t, ask(a.url), http.StatusTooManyRequests, model.CodeRateLimited)
	if metrics := a.metrics(t); !strings.Contains(metrics, `seckill_http_request_duration_seconds_count{code="404",method="OPTIONS",route="unmatched"} 5`) {
		t.Error("it is not in the metrics")
	}
	check.Equal(t, "the operations listener says", ask(a.ops).status, http.StatusBadRequest)
}

// metrics are what the operations listener tells.
func (a *app) metrics(t testing.TB) string {
	t.Helper()
	return string(check.Value(send(a.client, http.MethodGet, a.ops+"/metrics", "", nil))(t).body)
}

package e2e_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
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
	get := func(url string) api.Answer {
		return check.Value(api.Send(t.Context(), a.Client, http.MethodGet, url, "", nil))(t)
	}
	for path, want := range map[string]string{"/metrics": `seckill_build_info{goversion="go1.`, "/debug/pprof/": "goroutine", "/debug/pprof/heap?debug=1": "heap profile"} {
		get(a.URL + "/api/v1/vouchers")
		if got := get(a.ops + path); got.Status != http.StatusOK || !strings.Contains(string(got.Body), want) {
			t.Errorf("operations %s: %d", path, got.Status)
		}
		refused(t, get(a.URL+path), http.StatusNotFound, model.CodeNotFound)
	}
	if got := get(a.ops + "/api/v1/vouchers"); got.Status != http.StatusNotFound {
		t.Errorf("the API is on the operations listener: %d", got.Status)
	}
	live, ready := get(a.URL+"/livez"), get(a.URL+"/readyz")
	if live.Status != http.StatusOK || ready.Status != http.StatusOK || len(strings.Split(strings.TrimSpace(string(ready.Body)), "\n")) < 3 {
		t.Errorf("%d %d %s", live.Status, ready.Status, ready.Body)
	}
	docs := get(a.URL + "/api/v1/docs")
	if docs.Status != http.StatusOK || !strings.HasPrefix(docs.Header.Get("Content-Type"), "text/html") || strings.Contains(string(docs.Body), "//") && strings.Contains(string(docs.Body), "https://") {
		t.Errorf("%d %s", docs.Status, docs.Body)
	}
	for n, path := range []string{"/livez", "/api/v1/vouchers", "/nowhere"} {
		id := "trace-" + strconv.Itoa(n)
		got, err := api.Send(t.Context(), a.Client, http.MethodGet, a.URL+path, "", nil, "X-Request-Id: "+id)
		if err != nil || got.Header.Get("X-Request-Id") != id {
			t.Errorf("%s: %v %v", path, got.Header, err)
		}
	}
}

// A client may close its sending half behind its request, as nc -N and some proxies do, and buys like any other.
func TestHalfClosedClientsBuy(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, a shop) {
		t.Helper()
		voucher := a.Create(t, map[string]any{"stock": 10_000})
		var token string
		ask := func(method, path string) (api.Answer, error) {
			c := check.Value((&net.Dialer{}).DialContext(check.Context(t), "tcp", strings.TrimPrefix(a.URL, "http://")))(t)
			defer c.Close()
			request := check.Value(http.NewRequestWithContext(t.Context(), method, a.URL+"/api/v1"+path, nil))(t)
			request.Header.Set("Authorization", "Bearer "+token)
			check.Must(t, request.Write(c))
			tcp, _ := c.(*net.TCPConn)
			check.Must(t, tcp.CloseWrite())
			response, err := http.ReadResponse(bufio.NewReader(c), request)
			if err != nil {
				return api.Answer{}, err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			return api.Answer{Status: response.StatusCode, Header: response.Header, Body: body}, err
		}
		bought := remote.Insist(t, "a purchase", func(attempt int) (api.Answer, error) {
			token = a.Token(t, a.user(attempt), model.RoleUser) // another one: what a 503 leaves behind is another test's
			return ask(http.MethodPost, "/vouchers/"+voucher.ID+"/seckill")
		})
		order := remote.Decode[model.Order](t, bought)
		got := remote.Insist(t, "a wait", func(int) (api.Answer, error) { return ask(http.MethodGet, "/orders/"+order.ID+"?wait=30s") })
		check.Equal(t, "its order becomes", remote.Decode[model.Order](t, got).Status, model.OrderUnpaid)
	})
}

// The server as a whole, the target * of HTTP, is no way around what every request gets: an
// id, the limits, a place in the metrics.
func TestTheServerAsAWhole(t *testing.T) {
	t.Parallel()
	a := start(t, embeddedSettings(t).with(settings{"SECKILL_RATE_ADDR": "5/h"}))
	ask := func(url string) api.Answer {
		request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodOptions, url, nil))(t)
		request.URL.Path = "*"
		request.Header.Set("X-Request-Id", "of-the-whole")
		response, err := a.Client.Do(request)
		check.Must(t, err)
		defer response.Body.Close()
		return api.Answer{Status: response.StatusCode, Header: response.Header, Body: check.Value(io.ReadAll(response.Body))(t)}
	}
	got := ask(a.URL)
	refused(t, got, http.StatusNotFound, model.CodeNotFound)
	check.Equal(t, "its id", got.Header.Get("X-Request-Id"), "of-the-whole")
	for range 4 {
		got = ask(a.URL)
	}
	refused(t, got, http.StatusNotFound, model.CodeNotFound)
	refused(t, ask(a.URL), http.StatusTooManyRequests, model.CodeRateLimited)
	if metrics := a.metrics(t); !strings.Contains(metrics, `seckill_http_request_duration_seconds_count{code="404",method="OPTIONS",route="unmatched"} 5`) {
		t.Error("it is not in the metrics")
	}
	check.Equal(t, "the operations listener says", ask(a.ops).Status, http.StatusBadRequest)
}

// metrics are what the operations listener tells.
func (a *app) metrics(t testing.TB) string {
	t.Helper()
	return string(check.Value(api.Send(t.Context(), a.Client, http.MethodGet, a.ops+"/metrics", "", nil))(t).Body)
}

// metric reads one number from the metrics, whatever its labels.
func (a *app) metric(t *testing.T, name string) float64 {
	t.Helper()
	line := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindStringSubmatch(a.metrics(t))
	if line == nil {
		t.Fatalf("no metric is named %s", name)
	}
	return check.Value(strconv.ParseFloat(line[1], 64))(t)
}

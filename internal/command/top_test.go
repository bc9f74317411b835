package command

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

// metricsOf is a server whose metrics change with each reading.
func metricsOf(t *testing.T, readings ...string) (url string) {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := min(int(asked.Add(1)), len(readings)) - 1
		if readings[n] == "" || r.URL.Path != "/metrics" {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, readings[n])
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const firstReading = `# TYPE seckill_check_ready gauge
seckill_check_ready{check="database"} 1
seckill_check_ready{check="redis"} 0
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
# TYPE seckill_orders_placed_total counter
seckill_orders_placed_total{outcome="OK"} 10
seckill_orders_placed_total{outcome="SOLD_OUT"} 100
# TYPE seckill_order_place_seconds histogram
seckill_order_place_seconds_bucket{outcome="OK",le="0.01"} 10
seckill_order_place_seconds_bucket{outcome="OK",le="0.1"} 10
seckill_order_place_seconds_bucket{outcome="OK",le="+Inf"} 10
seckill_order_place_seconds_sum{outcome="OK"} 0.05
seckill_order_place_seconds_count{outcome="OK"} 10
# TYPE seckill_order_batch_size histogram
seckill_order_batch_size_bucket{le="+Inf"} 4
seckill_order_batch_size_sum 10
seckill_order_batch_size_count 4
# TYPE seckill_http_request_duration_seconds histogram
seckill_http_request_duration_seconds_bucket{code="201",le="+Inf"} 10
seckill_http_request_duration_seconds_sum{code="201"} 1
seckill_http_request_duration_seconds_count{code="201"} 10
`

// later is the first reading with other numbers.
func later(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(firstReading) }

func twoReadings(t *testing.T, seconds int, first, second string) []row {
	t.Helper()
	url := metricsOf(t, first, second)
	from := check.Value(read(t.Context(), http.DefaultClient, url))(t)
	to := check.Value(read(t.Context(), http.DefaultClient, url))(t)
	to.at = from.at.Add(time.Duration(seconds) * time.Second)
	return compare(from, to)
}

func TestTopShowsWhatHappenedBetweenTwoReadings(t *testing.T) {
	t.Parallel()
	shown := map[string]string{}
	for _, r := range twoReadings(t, 2, firstReading, later(
		`total{outcome="OK"} 10`, `total{outcome="OK"} 30`, `"SOLD_OUT"} 100`, `"SOLD_OUT"} 400`,
		`le="0.01"} 10`, `le="0.01"} 20`, `le="0.1"} 10`, `le="0.1"} 110`, `outcome="OK",le="+Inf"} 10`, `outcome="OK",le="+Inf"} 110`,
		`batch_size_bucket{le="+Inf"} 4`, `batch_size_bucket{le="+Inf"} 6`, "batch_size_sum 10", "batch_size_sum 35", "batch_size_count 4", "batch_size_count 6",
		`{code="201",le="+Inf"} 10`, `{code="201",le="+Inf"} 50`, `count{code="201"} 10`, `count{code="201"} 50`,
	)) {
		shown[r.topic] = r.text
	}
	for topic, want := range map[string]string{
		"buy":     "160/s  SOLD_OUT 150  OK 10  (0 % from memory)",
		"latency": "p50 50ms  p95 95ms  p99 99ms", // 10 of them in the first bucket, 90 evenly in the second
		"groups":  "transaction 12.5",
		"http":    "2xx 20/s  3xx 0/s  4xx 0/s  5xx 0/s",
	} {
		if shown[topic] != want {
			t.Errorf("%s: %q, want %q", topic, shown[topic], want)
		}
	}
	if !strings.HasPrefix(shown["server"], "NOT READY: redis, up ") {
		t.Errorf("server: %q", shown["server"])
	}
	if _, there := shown["backlog"]; there {
		t.Error("a server without a queue shows a backlog")
	}
}

// A server that was started again counts from zero: no rate is negative or gigantic.
func TestTopSurvivesARestart(t *testing.T) {
	t.Parallel()
	for _, r := range twoReadings(t, 1, firstReading, later(`total{outcome="OK"} 10`, `total{outcome="OK"} 3`, `"SOLD_OUT"} 100`, `"SOLD_OUT"} 0`,
		`le="0.01"} 10`, `le="0.01"} 3`, `le="0.1"} 10`, `le="0.1"} 3`, `outcome="OK",le="+Inf"} 10`, `outcome="OK",le="+Inf"} 3`)) {
		if strings.Contains(r.text, "-") && r.topic != "locks" && r.topic != "latency" && r.topic != "groups" {
			t.Errorf("%s: %q", r.topic, r.text)
		}
		if r.topic == "buy" && !strings.HasPrefix(r.text, "3/s  OK 3") {
			t.Errorf("buy: %q", r.text)
		}
	}
}

func TestTopWithoutATerminalWritesLines(t *testing.T) {
	t.Parallel()
	url := metricsOf(t, firstReading, firstReading, "", later(`"SOLD_OUT"} 100`, `"SOLD_OUT"} 1100`))
	got := call(t, nil, "", "top", "--url", url, "--interval", "100ms", "--count", "3")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.code != 0 || got.stderr != "" || len(lines) != 3 || strings.Contains(got.stdout, "\x1b") {
		t.Fatalf("exit %d: %s%s", got.code, got.stdout, got.stderr)
	}
	if !regexp.MustCompile(`^\S+Z \| server: NOT READY: redis, up \S+ \| buy: 0/s  OK 0 \| latency: p50 -  p95 -  p99 - \|`).MatchString(lines[0]) {
		t.Errorf("the first line is %q", lines[0])
	}
	if !strings.Contains(lines[1], "away: it answers 503") || !regexp.MustCompile(`SOLD_OUT \d`).MatchString(lines[2]) {
		t.Errorf("a server that is away for a moment: %q, then %q", lines[1], lines[2])
	}
}

func TestTopFitsTheTerminal(t *testing.T) {
	t.Parallel()
	rows := []row{{"buy", "größer als der Schirm"}, {"latency", "p50 1ms"}, {"beyond", "the last line"}}
	if got, want := paint(rows, 15, 3), "\x1b[Hbuy       größe\x1b[K\r\nlatency   p50 1\x1b[K\r\n\x1b[J"; got != want {
		t.Errorf("it draws %q, want %q", got, want)
	}
}

func TestTopNeedsAServer(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up 1") }))
	t.Cleanup(other.Close)
	for args, want := range map[string]string{
		"top --url " + other.URL:                  "no metrics of a seckill server",
		"top --url " + other.URL + "/x":           "no metrics of a seckill server",
		"top --ops-addr 127.0.0.1:1":              "http://127.0.0.1:1",
		"top --url localhost":                     "--url",
		"top --interval 1ms":                      "--interval",
		"top --count -1 --url http://127.0.0.1:1": "--count",
	} {
		got := call(t, nil, "", strings.Fields(args)...)
		if got.code == 0 || !strings.Contains(got.stderr, want) || got.stdout != "" {
			t.Errorf("%s: exit %d, %q, %q", args, got.code, got.stdout, got.stderr)
		}
	}
}

// Over a real server, in async: what a sale does is seen.
func TestTopWatchesASale(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t, "SECKILL_ORDER_MODE=async")
	s := counterOf(t, instance, cfg)
	voucher, ops := s.putUp(t, 10), instance.OpsURL()
	from := check.Value(read(t.Context(), http.DefaultClient, ops))(t)
	for n := range 20 {
		s.buys(t, fmt.Sprint(n), voucher)
	}
	var shown string
	check.Eventually(t, "every order has a row", func() bool {
		to := check.Value(read(t.Context(), http.DefaultClient, ops))(t)
		to.at = from.at.Add(time.Second) // the rates of a machine that is fast enough
		shown = line(time.Now(), compare(from, to))
		return to.by("seckill_reservations_persisted_total", "status")["unpaid"] == 10
	})
	for _, want := range []string{
		`server: ready, up \d`, `OK \d`, `SOLD_OUT \d`, `latency: p50 [\d.]+(µs|ms|s) `, `groups: .*reserve \d.*publish \d.*persist \d`,
		`backlog: \d+ messages`, `reconciles here`, `failed 0  dead letters 0  stuck 0  unreadable 0  drifted 0`, `http: 2xx [1-9.]`, `cores`,
	} {
		if !regexp.MustCompile(want).MatchString(shown) {
			t.Errorf("it does not show %q: %s", want, shown)
		}
	}
}

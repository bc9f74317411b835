package deployments

import (
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/sobek"

	"seckill/internal/workshop/check"
)

// judged is what the load test says of a run in which one promise was broken, by the metric of the promise; "" is a run
// in which none was. It runs the load test's own files in k6's own engine.
const judged = `
const run = { scenario: 'rush', rate: 100, duration: 1, stock: 25, arrivals: 100, maxVUs: 10 };
run.promises = promises(run);
const verdict = (opened, broken) => summary({
  setup_data: opened && { mode: 'sync' },
  metrics: Object.fromEntries(run.promises.map(({ metric, rule }) => [
    metric, { thresholds: { [rule]: { ok: !broken.includes(metric) } }, values: { count: 1, rate: 1, value: 1, med: 1, 'p(95)': 1, 'p(99)': 1, max: 1 } },
  ])),
}, run).stdout;
const metrics = run.promises.map(({ metric }) => metric);
Object.fromEntries([
  ['none', verdict(true, [])], ['unopened', verdict(false, [])], ['all', verdict(true, metrics)],
  ...metrics.map((metric) => [metric, verdict(true, [metric])]),
])`

// Whose fault a run's failure is, its verdict says: only what is k6's alone is k6's.
func TestTheVerdictOfALoadTest(t *testing.T) {
	t.Parallel()
	vm := sobek.New()
	check.Must(t, vm.Set("__ENV", map[string]string{"P99_ACCEPTED": "1", "P99_SOLD_OUT": "1", "MEMORY": "1", "OPS_URL": "http://127.0.0.1"}))
	var script strings.Builder
	for _, file := range []string{"settings", "promises", "summary"} {
		script.WriteString(regexp.MustCompile(`(?m)^import .*$|^export `).ReplaceAllString(read(t, "k6/"+file+".js"), ""))
	}
	said, ok := check.Value(vm.RunString(script.String() + judged))(t).Export().(map[string]any)
	if !ok || len(said) < 15 {
		t.Fatalf("the load test says %v", said)
	}
	verdicts := map[string]string{
		"none": "all promises were kept", "unopened": "THE SALE WAS NOT OPENED", "iterations": "K6 WAS TOO SLOW",
	}
	for broken, text := range said {
		want, known := verdicts[broken]
		if !known {
			want = "PROMISES WERE BROKEN"
		}
		for _, verdict := range []string{"all promises were kept", "THE SALE WAS NOT OPENED", "K6 WAS TOO SLOW", "PROMISES WERE BROKEN"} {
			if text, _ := text.(string); strings.Contains(text, verdict) != (verdict == want) {
				t.Errorf("broken: %s: whether it says %q: %v, want %q\n%s", broken, verdict, verdict != want, want, text)
			}
		}
	}
}

//part:stores

package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seckill/internal/demo"
	"seckill/internal/workshop/check"
)

// A demo sells, and its three counts agree.
func TestDemo(t *testing.T) {
	t.Parallel()
	for mode, demos := range map[string][]struct {
		buyers int
		stock  int64
		want   []string // in its output
	}{ // make test runs the first of each mode
		"sync": {
			{120, 7, []string{
				"201 CREATED 7 ", "409 SOLD_OUT 113 ", "120 of 120 answered, 7 sold", "7 of 7 sold", "MEDIAN P99", "remaining 0, balanced",
			}},
			{5, 50, []string{"201 CREATED 5 ", "5 of 50 sold", "remaining 45, balanced"}},
			{1, 0, []string{"409 SOLD_OUT 1 ", "0 of 0 sold"}},
			{1, 1, []string{"1 of 1 sold"}},
		},
		"async": {
			{120, 7, []string{
				"202 ACCEPTED 7 ", "409 SOLD_OUT 113 ", "7 orders were processing", "7 of 7 sold", "remaining 0, balanced",
			}},
			{5, 50, []string{"(stock 50, remaining 45, balanced)"}},
		},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			instance, cfg := started(t, "SECKILL_ORDER_MODE="+mode, "SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0")
			at := counterOf(t, instance, cfg)
			if !check.Faults {
				demos = demos[:1]
			}
			for _, d := range demos {
				var out check.Log
				s := demo.Sale{Base: at.URL, Tokens: at.Tokens, HTTP: at.Client, Buyers: d.buyers, Stock: d.stock, Out: &out}
				check.Must(t, s.Run(t.Context()))
				for _, want := range d.want {
					if text := words(out.String()); !strings.Contains(text, want) {
						t.Errorf("%d buyers of %d: it lacks %q:\n%s", d.buyers, d.stock, want, text)
					}
				}
			}
		})
	}
}

// The command has a server of its own, of whose settings only the order mode is said by the environment. It leaves
// nothing behind.
func TestDemoCleansUp(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	environ := []string{"SECKILL_LOCK_MODE=maybe", "SECKILL_ORDER_MODE=async"}
	got := call(t, environ, "", "demo", "--buyers", "2", "--stock", "1", "--stock-strategy", "optimistic")
	if got.code != 0 || !strings.Contains(words(got.stdout), "202 ACCEPTED 1 ") {
		t.Fatalf("%+v", got)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %q, %v", left, err)
	}
}

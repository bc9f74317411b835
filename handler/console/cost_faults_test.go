//go:build faults

//part:siege

package console_test

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

// A reading of a sale reads none of its orders, which are counted rarely. Nor does it ask every server whether it is
// ready: it would wait for the slowest. Each such look at Redis sets a key there, and each sign of life adds to a set.
func TestAReadingIsCheap(t *testing.T) {
	t.Parallel()
	const orders, readings = 200, 16
	w := watch(t, serve(t, false))
	w.sale(t, 0, orders)
	before := w.calls(t)
	w.browser.page(t, "/console/system")
	looks, signs := w.calls(t)["set"], w.calls(t)["zadd"]
	check.Need(t, looks > before["set"], "a look at Redis sets no key")
	entries := w.entries(t)
	next := w.browser.watch(t, w.id)
	counted := map[time.Time]bool{}
	for range readings {
		await(t, next, "a reading", func(r reading) bool {
			counted[r.Counts.At] = true // the first readings have none
			return r.Stock-r.Remaining == orders+1
		})
	}
	counts := 2 * len(counted) // one may be under way, and the chart has its own
	read := w.entries(t) - entries
	check.That(t, read < float64((counts+1)*(orders+1)),
		"%d readings with at most %d counts have read %.0f entries of indexes", readings, counts, read)
	after := w.calls(t)
	looks, signs = after["set"]-looks, after["zadd"]-signs
	// One look may be under way.
	check.That(t, looks <= signs+1, "Redis was looked at %.0f times, with %.0f signs of life", looks, signs)
}

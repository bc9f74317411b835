//go:build faults

//part:siege

package console_test

import (
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

// A reading of a sale reads none of its orders, and so does not grow with them: they are counted rarely, for those who watch
// and for the chart. Nor does it have every server asked whether it is ready, as a scrape does: it would wait for the
// slowest. The looks at Redis leave a key there.
func TestAReadingIsCheap(t *testing.T) {
	t.Parallel()
	const orders, readings = 200, 16
	w := watch(t, serve(t, false))
	w.sale(t, 0, orders)
	ready := func() []string { return check.Value(w.hot.Keys(t.Context(), "seckill:v1:ready:*").Result())(t) }
	w.browser.page(t, "/console/system")
	keys := ready()
	if len(keys) == 0 {
		t.Fatal("a look at Redis leaves no key")
	}
	check.Must(t, w.hot.Del(t.Context(), keys...).Err())
	_, before := w.statements(t)
	next := w.browser.watch(t, w.id)
	counted := map[time.Time]bool{}
	for range readings {
		await(t, next, "a reading", func(r reading) bool {
			counted[r.Counts.At] = true // the first readings have none
			return r.Stock-r.Remaining == orders+1
		})
	}
	counts := 2 * len(counted) // one may be under way, and the chart has its own
	if _, after := w.statements(t); after-before >= float64((counts+1)*(orders+1)) {
		t.Errorf("%d readings of a sale with %d orders and at most %d counts have read %.0f entries of indexes", readings, orders, counts, after-before)
	}
	if keys := ready(); len(keys) > 0 {
		t.Errorf("readings have left %q", keys)
	}
}

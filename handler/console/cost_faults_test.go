//go:build faults

//part:siege

package console_test

import (
	"testing"

	"seckill/internal/workshop/check"
)

// A reading of a sale reads none of its orders, and so does not grow with them. Nor does it have every server asked
// whether it is ready, as a scrape does: it would wait for the slowest. The looks at Redis leave a key there.
func TestAReadingIsCheap(t *testing.T) {
	t.Parallel()
	const orders = 200
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
	for range 4 {
		await(t, next, "a reading", func(r reading) bool { return r.Stock-r.Remaining == orders+1 })
	}
	if _, after := w.statements(t); after-before >= orders {
		t.Errorf("four readings of a sale with %d orders have read %.0f entries of indexes", orders, after-before)
	}
	if keys := ready(); len(keys) > 0 {
		t.Errorf("readings have left %q", keys)
	}
}

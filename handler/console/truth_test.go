package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
)

func TestAuditInWords(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	id := b.create(t, "stock", "5")
	s.buy(t, "alice", id)
	want(t, b.page(t, "/console/vouchers/"+id+"/audit"), "Everything adds up", "The stock of 5 is the 4 that remain and 1 live orders.", "seckill audit --repair")
	for _, action := range []string{"repair", "rebuild"} {
		if got := b.post(t, "/console/vouchers/"+id+"/"+action, nil); got.status != http.StatusConflict {
			t.Errorf("to %s in the order mode sync is %d", action, got.status)
		}
	}
	want(t, b.page(t, "/console/dead-letters"), "there is no queue")
	if got := b.get(t, "/console/vouchers/unknown/audit"); got.status != http.StatusNotFound {
		t.Errorf("the audit of nothing is %d", got.status)
	}
}

// With a queue the audit has three sides, and the hot copy can be repaired and rebuilt.
func TestAuditWithAQueue(t *testing.T) {
	t.Parallel()
	s := start(t, "SECKILL_ORDER_MODE=async")
	b := s.signedIn(t, "ada")
	id := b.create(t, "stock", "5")
	path := "/console/vouchers/" + id
	check.Eventually(t, "the sale is loaded", func() bool { return s.buy(t, "alice", id) != "UNAVAILABLE" })
	settled := func(what string) {
		t.Helper()
		check.Eventually(t, what, func() bool {
			page := b.page(t, path+"/audit")
			return strings.Contains(page, "Everything adds up") && strings.Contains(page, "The hot copy is open: 4 remain, 0 are reserved, 1 buyers have a mark.")
		})
	}
	settled("the audit adds up")
	want(t, b.act(t, path+"/rebuild", nil), "The hot copy is being rebuilt.")
	settled("it adds up after a rebuild")
	want(t, b.act(t, path+"/repair", nil), "What disagreed was repaired.")
	want(t, b.page(t, path), "data-events")
	want(t, b.page(t, "/console/dead-letters"), "There are none.")
	for _, sequence := range []string{"1", "x"} {
		if got := b.get(t, "/console/dead-letters/"+sequence); got.status != http.StatusNotFound {
			t.Errorf("the dead letter %s is %d", sequence, got.status)
		}
	}
	want(t, b.page(t, "/console/system"), "This instance is ready.", "async", "queue")
}

func TestSystemAndLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	ada, eve := s.signedIn(t, "ada"), s.signedIn(t, "eve")
	want(t, ada.page(t, "/console/system"), "This instance is ready.", `<th scope="row">database</th>`, `<th scope="row">redis</th>`, "sync")
	check.Eventually(t, "it lists itself among the instances, with the Redis inside it, too", func() bool {
		return strings.Contains(ada.page(t, "/console/system"), "<td>all</td><td>sync</td>")
	})
	id := ada.create(t)
	eve.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"paused"}})
	page := eve.page(t, "/console/log")
	want(t, page, "created a voucher", "changed a voucher", `href="/console/vouchers/`+id+`"`, `<code>state</code>: &#34;published&#34; → &#34;paused&#34;`)
	_, rest, _ := strings.Cut(page, `href="/console/log?actor=`)
	actor, _, _ := strings.Cut(rest, `"`)
	if only := eve.page(t, "/console/log?actor="+actor); strings.Contains(only, "created a voucher") || !strings.Contains(only, "changed a voucher") {
		t.Errorf("the log of %s: %s", actor, only)
	}
}

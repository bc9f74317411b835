package console_test

import (
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"seckill/internal/version"
	"seckill/internal/workshop/check"
)

func TestAuditInWords(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	id := b.create(t, "stock", "5")
	s.buy(t, "alice", id)
	want(t, b.page(t, "/console/vouchers/"+id+"/audit"), "Everything adds up", "The stock of 5 is the 4 that remain and 1 live orders.", "seckill audit --repair")
	for _, action := range []string{"repair", "rebuild"} {
		b.post(t, "/console/vouchers/"+id+"/"+action, nil).is(t, http.StatusConflict)
	}
	want(t, b.page(t, "/console/dead-letters"), "there is no queue")
	b.get(t, "/console/vouchers/unknown/audit").is(t, http.StatusNotFound)
}

func TestSystemAndLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	ada, eve := s.signedIn(t, "ada"), s.signedIn(t, "eve")
	want(t, ada.page(t, "/console/system"), "This instance is ready.", `<th scope="row">database</th>`, `<th scope="row">redis</th>`, "sync", "(commit "+version.Read().Commit+", "+runtime.Version()+")")
	check.Eventually(t, "it lists itself among the instances, with the Redis inside it, too", func() bool {
		return strings.Contains(ada.page(t, "/console/system"), `<span class="badge well">ready</span></td><td data-label="Role">all</td><td data-label="Order mode">sync</td>`)
	})
	id := ada.create(t)
	eve.act(t, "/console/vouchers/"+id+"/state", url.Values{"to": {"paused"}})
	page := eve.page(t, "/console/log")
	want(t, page, "created a voucher", "changed a voucher", `href="/console/vouchers/`+id+`"`, `State</span> published → paused`)
	_, rest, _ := strings.Cut(page, `href="/console/log?actor=`)
	actor, _, _ := strings.Cut(rest, `"`)
	if only := eve.page(t, "/console/log?actor="+actor); strings.Contains(only, "created a voucher") || !strings.Contains(only, "changed a voucher") {
		t.Errorf("the log of %s: %s", actor, only)
	}
}

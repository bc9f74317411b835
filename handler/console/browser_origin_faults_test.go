//go:build faults

//part:browser

package console_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"seckill/internal/workshop/check"
)

// lure serves the page of another origin, whose form pauses a sale of the console.
func lure(t *testing.T, target string) *httptest.Server {
	t.Helper()
	page := `<!doctype html><title>Win</title><form method="post" action="` + html.EscapeString(target) + `"><input type="hidden" name="to" value="paused"><button>Win</button></form>`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(page)) // the browser is gone
	}))
	t.Cleanup(server.Close)
	return server
}

// cookies watches which requests to a site have the cookie of a session.
type cookies struct {
	mu   sync.Mutex
	to   map[network.RequestID]string // URL
	with map[network.RequestID]bool
}

func (b *tab) watchCookies(t *testing.T) *cookies {
	t.Helper()
	c := &cookies{to: map[network.RequestID]string{}, with: map[network.RequestID]bool{}}
	chromedp.ListenTarget(b.ctx, func(event any) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch event := event.(type) {
		case *network.EventRequestWillBeSent:
			c.to[event.RequestID] = event.Request.URL
		case *network.EventRequestWillBeSentExtraInfo:
			cookie, _ := event.Headers["Cookie"].(string)
			c.with[event.RequestID] = strings.Contains(cookie, "seckill-console=")
		}
	})
	check.Must(t, chromedp.Run(b.ctx, network.Enable()))
	return c
}

// sent tells whether a request to a URL has had the cookie.
func (c *cookies) sent(url string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, to := range c.to {
		if to == url && c.with[id] {
			return true
		}
	}
	return false
}

// said is what a script's promise becomes.
func said(script string, result *string) chromedp.Action {
	return chromedp.Evaluate(script, result, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) })
}

// A page of another origin can change nothing, though its visitor has signed in. That of another port of the same host
// is of the same site, so that the browser sends the cookie along: what refuses it is the console.
func anotherOriginInABrowser(t *testing.T, c *chromium, s *site) {
	b := c.person(t, s.url)
	b.signIn(t, "ada")
	id := s.onSale(t, nil)
	target := s.url + "/console/vouchers/" + id + "/state"
	server := lure(t, target)
	refused := until(`document.querySelector("h1")?.textContent === "The request came from another site's page. Nothing was changed."`)
	for _, origin := range []struct {
		name, url string
		cookie    bool
	}{
		{"another port", server.URL, true},
		{"another host", strings.Replace(server.URL, "127.0.0.1", "localhost", 1), false},
	} {
		seen := b.watchCookies(t)
		b.run(t, "a form of "+origin.name+" is refused", chromedp.Navigate(origin.url), click("button"), refused)
		if seen.sent(target) != origin.cookie {
			t.Errorf("%s: the browser sent the session's cookie: %t", origin.name, !origin.cookie)
		}
		var post, read, call string
		b.run(t, "scripts of "+origin.name+" are refused", chromedp.Navigate(origin.url),
			said(`fetch("`+target+`", { method: "POST", mode: "no-cors", credentials: "include", body: new URLSearchParams({ to: "paused" }) }).then(() => "sent", () => "blocked")`, &post),
			said(`fetch("`+s.url+`/console", { credentials: "include" }).then((page) => page.text(), () => "blocked")`, &read),
			said(`fetch("`+s.url+`/api/v1/admin/vouchers/`+id+`", { method: "PATCH", credentials: "include", headers: { "Content-Type": "application/json" },
				body: JSON.stringify({ state: "paused" }) }).then((answer) => answer.text(), () => "blocked")`, &call))
		if read != "blocked" || call != "blocked" {
			t.Errorf("%s: a script reads %s and %s", origin.name, read, call)
		}
		if state := s.voucher(t, id)["state"]; state != "published" {
			t.Errorf("%s: the voucher is %v; the script's form was %s", origin.name, state, post)
		}
	}
	var own string
	b.run(t, "a script of the console's own pages could", b.visit("/console"),
		said(`fetch("`+target+`", { method: "POST", body: new URLSearchParams({ to: "paused" }) }).then((answer) => String(answer.status))`, &own))
	if state := s.voucher(t, id)["state"]; state != "paused" || own != "200" {
		t.Errorf("the same form of the same person in the console is %s, and the voucher is %v: nothing was proved", own, state)
	}
}

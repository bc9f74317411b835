package console_test

import (
	"context"
	"flag"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"seckill/internal/poll"
	"seckill/internal/testserver"
)

var screenshots = flag.String("screenshots", "", "the directory that the browser's pictures are written to; empty: none")

// chromium is a real browser with one tab.
type chromium struct {
	ctx  context.Context
	site *site

	mu       sync.Mutex
	troubles []string // what its scripts and its policy complained of
}

// open starts a browser until the test ends.
func (s *site) open(t *testing.T) *chromium {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1200, 900), //nolint:gocritic // a copy
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en"), chromedp.WSURLReadTimeout(2*time.Minute))
	running, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	tab, leave := chromedp.NewContext(running)
	t.Cleanup(leave)
	limited, enough := context.WithTimeout(tab, 5*time.Minute)
	t.Cleanup(enough)
	b := &chromium{ctx: limited, site: s}
	chromedp.ListenTarget(tab, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch event := event.(type) {
		case *runtime.EventExceptionThrown:
			b.troubles = append(b.troubles, event.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if event.Entry.Source == log.SourceSecurity || strings.Contains(event.Entry.Text, "Content Security Policy") {
				b.troubles = append(b.troubles, event.Entry.Text)
			}
		}
	})
	testserver.Must(t, chromedp.Run(limited, log.Enable(), runtime.Enable())) // the browser lives as long as this context
	return b
}

// run does what a person does, or fails the test with what the page shows then.
func (b *chromium) run(t *testing.T, what string, actions ...chromedp.Action) {
	t.Helper()
	step, enough := context.WithTimeout(b.ctx, time.Minute)
	defer enough()
	if err := chromedp.Run(step, actions...); err != nil {
		var shown string
		_ = chromedp.Run(b.ctx, chromedp.Text("body", &shown)) // the failure is what counts
		t.Fatalf("%s: %v; the page shows:\n%s", what, err, shown)
	}
}

// until waits until a script's expression is true, also across pages: one that is about to go answers with an error.
func until(expression string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		return poll.Until(ctx, 100*time.Millisecond, func() (bool, error) {
			var holds bool
			err := chromedp.Evaluate(expression, &holds).Do(ctx)
			return err == nil && holds, nil
		})
	})
}

// press presses the button, or follows the link, that has a text.
func press(text string) chromedp.Action {
	return chromedp.Click(`//main//*[self::button or self::a or self::summary][normalize-space()="`+text+`" and not(ancestor-or-self::*[@hidden])]`, chromedp.BySearch)
}

// picture writes what the browser shows, where somebody wants pictures.
func (b *chromium) picture(t *testing.T, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	var content []byte
	b.run(t, "picture "+name, chromedp.FullScreenshot(&content, 100))
	testserver.Must(t, os.WriteFile(filepath.Join(*screenshots, name+".png"), content, 0o600))
}

func (b *chromium) visit(path string) chromedp.Action { return chromedp.Navigate(b.site.url + path) }

// fits checks that a page needs no scrolling to the side on a telephone.
func (b *chromium) fits(t *testing.T, path string) {
	t.Helper()
	var wide int
	b.run(t, path+" at 390 px", chromedp.EmulateViewport(390, 844), b.visit(path), chromedp.WaitVisible("main", chromedp.ByQuery),
		chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide))
	if wide > 390 {
		t.Errorf("%s is %d pixels wide on a telephone", path, wide)
	}
}

// Both sides of a sale, one after the other: two browsers at once are too much for a small machine.
func TestInABrowser(t *testing.T) { //nolint:tparallel // see above
	t.Parallel()
	t.Run("console", consoleInABrowser) //nolint:paralleltest // see above
	t.Run("shop", shopInABrowser)       //nolint:paralleltest // see above
}

// An administrator puts a voucher up and sees it sell, without a reload.
func consoleInABrowser(t *testing.T) {
	s := start(t)
	s.administrator(t, "ada")
	b := s.open(t)
	fill := func(username, password string) chromedp.Action {
		return chromedp.Tasks{chromedp.SetValue("#username", username), chromedp.SetValue("#password", password), chromedp.Submit("#password")}
	}
	b.run(t, "/ leads to the sign-in", b.visit("/"), chromedp.WaitVisible("#password"))
	b.run(t, "a wrong password is refused", fill("ada", "a wrong password"), chromedp.WaitVisible(".refusal"))
	b.run(t, "signed in", fill("ada", password), chromedp.WaitVisible(`a[href="/console/vouchers/new"]`))

	const title = `Coffee <script>document.title = "broken"</script>`
	now := time.Now().UTC()
	b.run(t, "the form of a new voucher", press("New voucher"), chromedp.WaitVisible("#title"))
	b.run(t, "a field is wrong", chromedp.SetValue("#title", title), chromedp.SetValue("#price", "ten"), chromedp.SetValue("#face_value", "25"),
		chromedp.SetValue("#stock", "30"), chromedp.SetValue("#begin_at", now.Add(-time.Hour).Format("2006-01-02T15:04:05")),
		chromedp.SetValue("#end_at", now.Add(time.Hour).Format("2006-01-02T15:04:05")), press("Create"), chromedp.WaitVisible("#price-wrong"))
	var kept string
	b.run(t, "what was typed is there", chromedp.Value("#title", &kept))
	if kept != title {
		t.Errorf("the title is %q", kept)
	}
	b.run(t, "created", chromedp.SetValue("#price", "10"), press("Create"), chromedp.WaitVisible("[data-events]"),
		until(`document.querySelector("[data-connection]").textContent.startsWith("Live")`))
	var place string
	b.run(t, "a script in a title stays text", chromedp.Location(&place), until(`document.title.includes("<script>") && document.querySelector("h1").textContent.includes("<script>")`))
	path := strings.TrimSuffix(strings.TrimPrefix(place, s.url), "?done=created")
	id := path[strings.LastIndexByte(path, '/')+1:]

	b.run(t, "the page is marked", chromedp.Evaluate(`window.neverReloaded = true`, nil))
	var buyers sync.WaitGroup
	for n := range 40 {
		buyers.Go(func() { s.buy(t, "buyer-"+strconv.Itoa(n), id) })
	}
	buyers.Wait()
	b.run(t, "the bar has fallen without a reload", until(`window.neverReloaded && document.querySelector('[data-live="remaining"]').textContent === "0" &&
		document.querySelector("[data-bar]").value === 0 && document.querySelector('[data-live="sold"]').textContent === "30" &&
		document.querySelector("[data-phase]").textContent === "sold out"`))
	b.run(t, "the charts are drawn", until(`["units", "answers", "latency"].every((name) =>
		/^M.*[Lh]/.test(document.querySelector('[data-chart="' + name + '"] path')?.getAttribute("d")))`))
	b.picture(t, "sale")

	b.run(t, "restock", press("Restock"), chromedp.SetValue("#delta", "5"), press("Change the stock"),
		until(`document.querySelector('[data-live="remaining"]').textContent === "5"`))
	b.run(t, "marked again", chromedp.Evaluate(`window.neverReloaded = true`, nil))
	eve := s.signedIn(t, "eve")
	eve.act(t, path+"/state", url.Values{"to": {"paused"}})
	b.run(t, "another administrator's pause shows", until(`window.neverReloaded && document.querySelector("[data-phase]").textContent === "paused" &&
		!document.querySelector("[data-changed]").hidden`))
	if got := s.buy(t, "late", id); got != "PAUSED" {
		t.Errorf("a buyer hears %s", got)
	}
	b.run(t, "resume", press("Show it as it is now"), chromedp.WaitVisible("[data-events]"), press("Resume"), press("Resume the sale"), chromedp.WaitVisible(".done:not([hidden])"))
	b.run(t, "audit", press("Audit"), chromedp.WaitVisible(".done:not([hidden])"))
	b.picture(t, "audit")
	for _, page := range []string{"/console", "/console/vouchers/new", path, path + "/edit", path + "/audit", "/console/orders?voucher=" + id, "/console/log", "/console/system", "/shop"} {
		b.fits(t, page)
	}
	b.run(t, "signed out", chromedp.EmulateViewport(1200, 900), b.visit("/console"), chromedp.Submit(`form[action="/console/sign-out"] button`), chromedp.WaitVisible("#password"))
	b.quiet(t)
}

// quiet checks that no script has failed, and that nothing was tried that the policy forbids.
func (b *chromium) quiet(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, trouble := range b.troubles {
		t.Errorf("the browser complains: %s", trouble)
	}
}

// A buyer registers, buys, pays with the simulated provider and gets the code.
func shopInABrowser(t *testing.T) {
	s := start(t)
	id := s.signedIn(t, "ada").create(t, "stock", "3")
	b := s.open(t)
	b.run(t, "the shop shows the voucher", b.visit("/shop"), chromedp.WaitVisible("#vouchers article"),
		until(`document.querySelector('#vouchers [data-field="left"]').textContent === "3 / 3" && document.querySelector('#vouchers [data-field="buy"]').disabled`))
	b.run(t, "registered", chromedp.SetValue("#username", "carol"), chromedp.SetValue("#password", password), press("Register"), chromedp.WaitVisible("#buyer"))
	b.run(t, "bought", until(`!document.querySelector('#vouchers [data-field="buy"]').disabled`), press("Buy"), chromedp.WaitVisible("#pay"),
		until(`document.querySelector('#vouchers [data-field="left"]').textContent === "2 / 3"`))
	b.picture(t, "shop")
	var link string
	b.run(t, "the payment is started", press("Pay"), chromedp.WaitVisible("#payment"), chromedp.AttributeValue("#payment", "href", &link, nil))
	response, err := http.PostForm(link, url.Values{"decision": {"approve"}})
	testserver.Must(t, err)
	testserver.Must(t, response.Body.Close())
	b.run(t, "the code is there", until(`document.querySelector('#order [data-field="status"]').textContent === "paid" &&
		document.querySelector('#order code[data-field="code"]').textContent.length > 8`))
	if v := s.voucher(t, id); v["remaining"] != 2.0 {
		t.Errorf("%v remain", v["remaining"])
	}
	b.quiet(t)
}

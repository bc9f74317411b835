//go:build faults

//part:browser

package console_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"seckill/internal/poll"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

var (
	steps    = flag.String("steps", "", "the directory that a picture of each step in the browser is written to; empty: none")
	pictures = flag.String("pictures", "", "the directory that the README's pictures are written to; empty: none")
)

// Both sides of a sale, one part after the other in one browser: several at once are too much for a small machine.
func TestInABrowser(t *testing.T) { //nolint:tparallel // see above
	t.Parallel()
	s := start(t)
	for _, name := range []string{"ada", "eve"} {
		s.administrator(t, name)
	}
	c := open(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *chromium, *site)
	}{
		{"sale", saleInABrowser},
		{"fair shop", fairShopInABrowser},
		{"another origin", anotherOriginInABrowser},
		{"watching", watchingInABrowser},
		{"every page", everyPageInABrowser},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, c, s) })
	}
	if *pictures != "" {
		t.Run("pictures", func(t *testing.T) { picturesInABrowser(t, c, s) })
	}
}

// browserLasts bounds all that is done in the browser: what follows is of a machine that is far too busy.
const browserLasts = 8 * time.Minute

// chromium is a real browser.
type chromium struct {
	first context.Context // chromedp keeps the browser in it
	steps atomic.Int64
}

// open starts a browser. It ends, by its process id, with the test or when its time is over.
func open(t *testing.T) *chromium {
	t.Helper()
	said, err := os.Create(filepath.Join(t.TempDir(), "chromium.log"))
	check.Must(t, err)
	t.Cleanup(func() {
		if content, _ := os.ReadFile(said.Name()); t.Failed() {
			t.Logf("chromium says:\n%s", content[max(0, len(content)-4000):])
		}
		_ = said.Close() // the test is over
	})
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1200, 900), //nolint:gocritic // a copy
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en"), chromedp.Env("TZ=UTC"), chromedp.WSURLReadTimeout(2*time.Minute), chromedp.CombinedOutput(said))
	limited, enough := context.WithTimeout(t.Context(), browserLasts)
	t.Cleanup(enough)
	running, stop := chromedp.NewExecAllocator(limited, options...)
	t.Cleanup(stop)
	first, leave := chromedp.NewContext(running, chromedp.WithErrorf(func(string, ...any) {})) // of events that are newer than it
	t.Cleanup(leave)
	check.Must(t, testserver.OnKeptThread(func() error { return chromedp.Run(first) }, func() { <-running.Done() }))
	return &chromium{first: first}
}

// tab is a tab of one person's.
type tab struct {
	browser *chromium
	ctx     context.Context // chromedp keeps the tab in it
	cookies cdp.BrowserContextID
	url     string // of the site

	mu       sync.Mutex
	troubles []string // what its scripts and its policy complained of
}

// person is a tab of somebody whose cookies nobody else in the browser has.
func (c *chromium) person(t *testing.T, url string) *tab {
	t.Helper()
	var cookies cdp.BrowserContextID
	check.Must(t, c.ask(func(ctx context.Context) (err error) {
		cookies, err = target.CreateBrowserContext().WithDisposeOnDetach(true).Do(ctx)
		return err
	}))
	return c.tab(t, cookies, url)
}

// another is another tab of the same person.
func (b *tab) another(t *testing.T) *tab {
	t.Helper()
	return b.browser.tab(t, b.cookies, b.url)
}

// ask asks the browser, and no tab.
func (c *chromium) ask(what func(context.Context) error) error {
	return what(cdp.WithExecutor(c.first, chromedp.FromContext(c.first).Browser))
}

// tab opens a tab in a window of its own: there is none yet for new cookies.
func (c *chromium) tab(t *testing.T, cookies cdp.BrowserContextID, url string) *tab {
	t.Helper()
	var id target.ID
	check.Must(t, c.ask(func(ctx context.Context) (err error) {
		id, err = target.CreateTarget("about:blank").WithBrowserContextID(cookies).WithNewWindow(true).Do(ctx)
		return err
	}))
	ctx, leave := chromedp.NewContext(c.first, chromedp.WithTargetID(id))
	t.Cleanup(leave)
	b := &tab{browser: c, ctx: ctx, cookies: cookies, url: url}
	chromedp.ListenTarget(ctx, func(event any) {
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
	// Each tab behaves as the one that a person looks at.
	check.Must(t, chromedp.Run(ctx, log.Enable(), runtime.Enable(), emulation.SetFocusEmulationEnabled(true), chromedp.EmulateViewport(1200, 900)))
	return b
}

// run does what a person does, or fails the test with what the page shows then. With -steps it leaves a picture.
func (b *tab) run(t *testing.T, what string, actions ...chromedp.Action) {
	t.Helper()
	defer func() {
		if *steps == "" {
			return
		}
		name := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(what), "-")
		content, _ := b.shot() // of a page that is about to go there is none
		check.Must(t, os.WriteFile(filepath.Join(*steps, fmt.Sprintf("%03d-%s.png", b.browser.steps.Add(1), name)), content, 0o600))
	}()
	b.do(t, what, actions...)
}

// do is run without a picture.
func (b *tab) do(t *testing.T, what string, actions ...chromedp.Action) {
	t.Helper()
	step, enough := context.WithTimeout(b.ctx, check.Deadline)
	defer enough()
	if err := chromedp.Run(step, actions...); err != nil {
		var shown string
		look, enough := context.WithTimeout(b.ctx, shotLasts)
		defer enough()
		_ = chromedp.Run(look, chromedp.Evaluate("document.body.innerText", &shown)) // the failure is what counts
		t.Fatalf("%s: %v; the page shows:\n%s", what, err, shown)
	}
}

// shotLasts bounds a look at a page, which no test waits for.
const shotLasts = 10 * time.Second

func (b *tab) shot() (content []byte, err error) {
	ctx, enough := context.WithTimeout(b.ctx, shotLasts)
	defer enough()
	err = chromedp.Run(ctx, page.BringToFront(), chromedp.CaptureScreenshot(&content))
	return content, err
}

// picture writes one of the README's pictures, of a window of a size. They are small, because every clone has them.
func (b *tab) picture(t *testing.T, name string, width, height int64) {
	t.Helper()
	const widest, largest = 1100, 150 << 10
	b.run(t, "picture "+name, chromedp.EmulateViewport(width, height))
	content := check.Value(b.shot())(t)
	size := check.Value(png.DecodeConfig(bytes.NewReader(content)))(t)
	if size.Width > widest || len(content) > largest {
		t.Errorf("the picture %s has %d pixels a line and %d bytes, want at most %d and %d", name, size.Width, len(content), widest, largest)
	}
	check.Must(t, os.WriteFile(filepath.Join(*pictures, name+".png"), content, 0o600))
}

func (b *tab) visit(path string) chromedp.Action { return chromedp.Navigate(b.url + path) }

// signIn signs an administrator in.
func (b *tab) signIn(t *testing.T, name string) {
	t.Helper()
	b.run(t, name+" signs in", b.visit("/console/sign-in"), visible("#password"), credentials(name, password), visible(`a[href="/console/vouchers/new"]`))
}

// credentials fills in the form of a sign-in, and sends it.
func credentials(username, password string) chromedp.Action {
	return chromedp.Tasks{fill("#username", username), fill("#password", password), click(`.card form button`)}
}

// ready is a script's test whether somebody could use a place now: the page has loaded, and the place is shown and
// enabled.
const ready = `const ready = (place) => document.readyState === 'complete' && place?.checkVisibility() && !place.disabled;`

// fill types into a field as soon as somebody could. Nothing is kept of a page that is replaced meanwhile: it is begun
// anew.
func fill(selector, text string) chromedp.Action {
	return until(fmt.Sprintf(`{
		%s
		const field = document.querySelector(%q);
		const can = ready(field);
		if (can) {
			field.focus();
			field.value = %q;
			for (const type of ['input', 'change']) field.dispatchEvent(new Event(type, { bubbles: true }));
		}
		can && field.value !== '';
	}`, ready, selector, text))
}

// click presses the mouse's button on what a selector finds, as soon as somebody could.
func click(selector string) chromedp.Action {
	return clickOn(fmt.Sprintf(`document.querySelector(%q)`, selector))
}

// clickOn is click of what a script finds, where nothing else is above it.
func clickOn(place string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		var was, at []float64
		err := poll.Until(ctx, 50*time.Millisecond, func() (bool, error) {
			at = nil
			err := chromedp.Evaluate(fmt.Sprintf(`(() => {
				%s
				const place = %s;
				if (!ready(place)) return [];
				place.scrollIntoView({ block: 'center', behavior: 'instant' });
				const box = place.getClientRects()[0];
				const at = [box.x + box.width / 2, box.y + box.height / 2];
				const above = document.elementFromPoint(...at);
				return place.contains(above) ? at : [];
			})()`, ready, place), &at).Do(ctx)
			rests := slices.Equal(at, was) // what moves would not be met
			was = at
			return err == nil && len(at) == 2 && rests, nil
		})
		if err != nil {
			return fmt.Errorf("press %s: %w", place, err)
		}
		return chromedp.MouseClickXY(at[0], at[1]).Do(ctx)
	})
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

// visible waits until something can be seen.
func visible(selector string) chromedp.Action {
	return until(fmt.Sprintf(`document.readyState === "complete" && document.querySelector(%q)?.checkVisibility()`, selector))
}

// done waits until a page says what was done.
func done() chromedp.Action { return visible(".done:not([data-changed])") }

// shows waits until a place of a page has a text.
func shows(selector, text string) chromedp.Action {
	return until(fmt.Sprintf(`document.querySelector(%q)?.textContent.trim() === %q`, selector, text))
}

// press presses the button, or follows the link, that has a text.
func press(text string) chromedp.Action {
	return clickOn(fmt.Sprintf(`[...document.querySelectorAll('main button, main a, main summary')].find((place) => place.checkVisibility() && place.textContent.trim() === %q)`, text))
}

// leads presses what leads to another page, or to the same one again, and waits for that.
func leads(press chromedp.Action) chromedp.Action {
	return chromedp.Tasks{chromedp.Evaluate(`window.here = true`, nil), press, until(`!window.here && document.readyState === "complete"`)}
}

// scheme is what the person has chosen for all pages: light or dark.
func scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}})
}

// sticksOut are the boxes whose content is wider than they are, and lies over what is beside them.
const sticksOut = `[...document.querySelectorAll('nav li, .kpi, .card, .btn, .alert, .badge')]
	.filter((box) => box.checkVisibility() && box.clientWidth > 1 && box.scrollWidth > box.clientWidth + 1).map((box) => box.innerText)`

// fits checks that the page needs no scrolling to the side, from a narrow telephone to a desk, also where the frame
// changes, and that nothing lies over something else.
func (b *tab) fits(t *testing.T, what string) {
	t.Helper()
	for _, width := range []int64{360, 768, 1024, 1440} {
		var wide int64
		var out []string
		b.do(t, fmt.Sprintf("%s at %d px", what, width), chromedp.EmulateViewport(width, 844), chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide), chromedp.Evaluate(sticksOut, &out))
		if wide > width || len(out) > 0 {
			t.Errorf("%s is %d pixels wide in a window of %d, and there is not enough room for %q", what, wide, width, out)
		}
	}
	b.do(t, what, chromedp.EmulateViewport(1200, 900))
}

// quiet checks that no script has failed, and that nothing was tried that the policy forbids.
func (b *tab) quiet(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, trouble := range b.troubles {
		t.Errorf("the browser complains: %s", trouble)
	}
}

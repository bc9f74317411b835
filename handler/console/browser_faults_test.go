//go:build faults

//part:browser
package console_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/png"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
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
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"seckill/internal/poll"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

var (
	steps = flag.String("steps", "",
		"the directory that a picture of each step in the browser is written to; empty: none")
	pictures = flag.String("pictures", "", "the directory that the README's pictures are written to; empty: none")
)

// Both sides of a sale, one part after the other in one browser: several at once are too much for a small machine.
func TestInABrowser(t *testing.T) { //nolint:tparallel // see above
	t.Parallel()
	s := start(t, unheard()...)
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
const browserLasts = 18 * time.Minute

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
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en"), chromedp.Env("TZ=UTC"),
		chromedp.WSURLReadTimeout(2*time.Minute), chromedp.CombinedOutput(said))
	limited, enough := context.WithTimeout(t.Context(), browserLasts)
	t.Cleanup(enough)
	running, stop := chromedp.NewExecAllocator(limited, options...)
	t.Cleanup(stop)
	// The library's errors are of events that are newer than it.
	first, leave := chromedp.NewContext(running, chromedp.WithErrorf(func(string, ...any) {}))
	t.Cleanup(leave)
	check.Must(t, testserver.OnKeptThread(func() error { return chromedp.Run(first) }, func() { <-running.Done() }))
	return &chromium{first: first}
}

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

func (b *tab) another(t *testing.T) *tab {
	t.Helper()
	return b.browser.tab(t, b.cookies, b.url)
}

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
			if event.Entry.Source == log.SourceSecurity ||
				strings.Contains(event.Entry.Text, "Content Security Policy") {
				b.troubles = append(b.troubles, event.Entry.Text)
			}
		}
	})
	// Each tab behaves as the one that a person looks at.
	check.Must(t, chromedp.Run(ctx, log.Enable(), runtime.Enable(), emulation.SetFocusEmulationEnabled(true),
		chromedp.EmulateViewport(1200, 900)))
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
		check.Must(t, os.WriteFile(filepath.Join(*steps, fmt.Sprintf("%03d-%s.png", b.browser.steps.Add(1), name)),
			content, 0o600))
	}()
	b.do(t, what, actions...)
}

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
	check.That(t, size.Width <= widest && len(content) <= largest, "the picture %s has %d pixels a line and %d bytes",
		name, size.Width, len(content))
	check.Must(t, os.WriteFile(filepath.Join(*pictures, name+".png"), content, 0o600))
}

func (b *tab) visit(path string) chromedp.Action { return chromedp.Navigate(b.url + path) }

func (b *tab) signIn(t *testing.T, name string) {
	t.Helper()
	b.run(t, name+" signs in", b.visit("/console/sign-in"), visible("#password"), credentials(name, password),
		visible(`a[href="/console/vouchers/new"]`))
}

func credentials(username, password string) chromedp.Action {
	return chromedp.Tasks{fill("#username", username), fill("#password", password), click(`.card form button`)}
}

// ready is a script's test whether somebody could use a place now.
const ready = `const ready = (place) => document.readyState === 'complete' && place?.checkVisibility() && !place.disabled;`

// fill types into a field as soon as somebody could, and begins anew on a page that is replaced meanwhile.
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

func visible(selector string) chromedp.Action {
	return until(fmt.Sprintf(`document.readyState === "complete" && document.querySelector(%q)?.checkVisibility()`, selector))
}

func done() chromedp.Action { return visible(".done:not([data-changed])") }

func shows(selector, text string) chromedp.Action {
	return until(fmt.Sprintf(`document.querySelector(%q)?.textContent.trim() === %q`, selector, text))
}

func press(text string) chromedp.Action {
	return clickOn(fmt.Sprintf(`[...document.querySelectorAll('main button, main a, main summary')].find((place) => place.checkVisibility() && place.textContent.trim() === %q)`, text))
}

// leads presses what leads to another page, or to the same one again, and waits for that.
func leads(press chromedp.Action) chromedp.Action {
	return chromedp.Tasks{chromedp.Evaluate(`window.here = true`, nil), press, until(`!window.here && document.readyState === "complete"`)}
}

func scheme(name string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{
		Name:  "prefers-color-scheme",
		Value: name,
	}})
}

// sticksOut are the boxes whose content is wider than they are, and lies over what is beside them.
const sticksOut = `[...document.querySelectorAll('nav li, .kpi, .card, .btn, .alert, .badge')]
	.filter((box) => box.checkVisibility() && box.clientWidth > 1 && box.scrollWidth > box.clientWidth + 1).map((box) => box.innerText)`

// fits checks that the page needs no scrolling to the side at any width, and that nothing lies over something else.
func (b *tab) fits(t *testing.T, what string) {
	t.Helper()
	for _, width := range []int64{360, 390, 768, 1024, 1280, 1440} {
		var wide int64
		var out []string
		b.do(t, fmt.Sprintf("%s at %d px", what, width), chromedp.EmulateViewport(width, 844),
			chromedp.Evaluate(`document.documentElement.scrollWidth`, &wide), chromedp.Evaluate(sticksOut, &out))
		check.That(t, wide <= width && len(out) == 0, "%s is %d pixels wide in a window of %d, and has no room for %q",
			what, wide, width, out)
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

// The axe-core of testdata/axe; its README.md tells where it is from.
const (
	axeVersion = "4.14.1"
	axeHash    = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c" // SHA-256
)

// axeRun asks for WCAG 2.0 to 2.2, A and AA, with the size of targets, which is off by default, and opens each dialog.
const axeRun = `(async () => {
	const ask = async (where) => (await axe.run(where, {
		runOnly: { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] },
		rules: { 'target-size': { enabled: true } }, resultTypes: ['violations'],
	})).violations;
	const found = await ask(document);
	for (const dialog of document.querySelectorAll('dialog:not([open])')) {
		dialog.showModal();
		found.push(...await ask(dialog));
		dialog.close();
	}
	return JSON.stringify(found.map(({ id, nodes }) => ({ id, nodes: nodes.map((node) => node.html + ': ' + node.failureSummary) })));
})()`

func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// beforehand lets a script run before those of each page that the tab goes to.
func beforehand(script string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(script).Do(ctx)
		return err
	})
}

func axe(t *testing.T) string {
	t.Helper()
	script := check.Value(os.ReadFile("testdata/axe/axe.min.js"))(t)
	check.Equal(t, "the sum of axe-core "+axeVersion, fmt.Sprintf("%x", sha256.Sum256(script)), axeHash)
	return string(script)
}

// finds is what axe finds in a scheme, by rule. The page's policy does not bind what the browser's tools evaluate.
func (b *tab) finds(t *testing.T, script, inScheme, what string) map[string][]string {
	t.Helper()
	var version, result string
	b.run(t, what+" in "+inScheme, scheme(inScheme),
		chromedp.Evaluate(`window.axe?.version ?? ''`, &version))
	if version == "" {
		b.do(t, "axe", chromedp.Evaluate(script, nil), chromedp.Evaluate(`axe.version`, &version))
	}
	check.Equal(t, "the version of axe", version, axeVersion)
	b.do(t, "axe on "+what+" in "+inScheme,
		chromedp.Evaluate(axeRun, &result, awaited))
	var violations []struct {
		ID    string
		Nodes []string
	}
	check.Must(t, json.Unmarshal([]byte(result), &violations))
	found := map[string][]string{}
	for _, v := range violations {
		found[v.ID] = v.Nodes
	}
	return found
}

// clean checks that axe finds nothing on the page as it is, in either scheme.
func (b *tab) clean(t *testing.T, what string) {
	t.Helper()
	script := axe(t)
	for _, in := range []string{"light", "dark"} {
		for rule, nodes := range b.finds(t, script, in, what) {
			t.Errorf("%s in %s: axe finds %s:\n%s", what, in, rule, strings.Join(nodes, "\n"))
		}
	}
}

func everyPageInABrowser(t *testing.T, c *chromium, s *site) {
	script := axe(t)
	seen := map[string]bool{}
	look := func(b *tab, v view) {
		t.Helper()
		seen[v.template] = true
		what := v.template + " " + v.path
		if v.path != "" {
			b.run(t, what, b.visit(v.path), visible("main"))
			b.walk(t, what)
		}
		b.clean(t, what)
		b.fits(t, what)
	}
	stranger := c.person(t, s.url)
	look(stranger, view{"sign_in", "/console/sign-in"})
	stranger.run(t, "a wrong password", credentials("nobody", "a wrong password"), visible(".refusal"))
	look(stranger, view{"sign_in", ""})

	late := c.person(t, s.url)
	late.signIn(t, "ada")
	late.run(t, "a form whose session has ended", late.visit("/console/vouchers/new"),
		fill("#title", strings.Repeat("Donaudampfschiff", 9)),
		fill("#price", "1"), fill("#face_value", "1"), fill("#stock", "1"),
		network.ClearBrowserCookies(), leads(press("Create")), visible("#password"))
	look(late, view{"sign_in", ""})
	late.run(t, "signed in again", credentials("ada", password), visible(`input[name="again"] ~ button`))
	look(late, view{"typed", ""})
	late.run(t, "back to the form", leads(press("Back to the form")),
		until(`document.querySelector("#title").value.startsWith("Donaudampfschiff")`))

	b := c.person(t, s.url)
	b.signIn(t, "ada")
	views := s.views(t)
	for _, v := range views {
		look(b, v)
	}
	b.run(t, "a voucher that is wrong", b.visit("/console/vouchers/new"), fill("#title", "x"), fill("#price", "x"),
		fill("#face_value", "x"), fill("#stock", "x"), fill("#payment_window", "x"),
		leads(press("Create")), visible("#stock-wrong"))
	look(b, view{"voucher_form", ""})
	b.run(t, "a code that is wrong", b.visit("/console/redeem"), fill("#code", "x"), leads(press("Use the code")),
		visible(".verdict.bad"))
	look(b, view{"redeem", ""})
	b.controlled(t, script)
	broken := damagedShop(t, c)
	for _, v := range damagedViews() {
		look(broken, v)
	}

	b.run(t, "Chinese", b.visit("/console"), click(`header button[name="to"]`),
		until(`document.documentElement.lang === "zh"`))
	for _, v := range views {
		var said string
		b.run(t, "Chinese "+v.path, b.visit(v.path),
			until(`document.readyState === "complete" && document.documentElement.lang === "zh"`),
			chromedp.Evaluate(`document.body.innerText`, &said))
		check.Equal(t, "the English of "+v.path, strings.Join(foreign("zh", said), "; "), "")
		b.fits(t, "Chinese "+v.path)
	}
	files := check.Value(filepath.Glob("pages/*.html"))(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".html")
		check.That(t, name == "layout" || seen[name], "no view here shows %s", file)
	}
}

// controlled checks that axe finds what is wrong on purpose.
func (b *tab) controlled(t *testing.T, script string) {
	t.Helper()
	b.run(t, "a page with faults", b.visit("/console"), visible("main"), chromedp.Evaluate(`{
		const image = document.createElement('img');
		image.src = '/console/static/console.css';
		const faint = document.createElement('p');
		faint.textContent = 'Nobody can read this.';
		faint.style.color = '#ddd';
		faint.style.backgroundColor = '#fff';
		document.querySelector('main').append(image, faint);
	}`, nil))
	found := slices.Sorted(maps.Keys(b.finds(t, script, "light", "a page with faults")))
	check.Equal(t, "an image without a text, and a text without contrast", strings.Join(found, " "),
		"color-contrast image-alt")
}

func damagedShop(t *testing.T, c *chromium) *tab {
	t.Helper()
	broken := &shop{queued: true}
	session := broken.browser(t)
	server := httptest.NewServer(broken.console)
	t.Cleanup(server.Close)
	place := check.Value(url.Parse(session.site.url))(t)
	b := c.person(t, server.URL)
	for _, cookie := range session.client.Jar.Cookies(place) {
		b.run(t, "the session", network.SetCookie(cookie.Name, cookie.Value).WithURL(server.URL))
	}
	return b
}

type film struct {
	frames []image.Image
	delay  int // between two of them, in hundredths of a second
}

func (f *film) shoot(t *testing.T, b *tab) {
	t.Helper()
	content := check.Value(b.shot())(t)
	f.frames = append(f.frames, check.Value(png.Decode(bytes.NewReader(content)))(t))
}

// write writes a GIF that is small enough for every clone: of each frame the lines that differ from the one before.
func (f *film) write(t *testing.T, name string) {
	t.Helper()
	const largest = 1_500_000
	colours := f.colours()
	var moving gif.GIF
	var shown *image.Paletted
	for _, frame := range f.frames {
		all := image.NewPaletted(frame.Bounds(), colours)
		draw.Draw(all, all.Rect, frame, all.Rect.Min, draw.Src)
		part := all.Rect
		same := func(y int) bool {
			return shown != nil && bytes.Equal(all.Pix[all.PixOffset(0, y):all.PixOffset(0, y+1)],
				shown.Pix[all.PixOffset(0, y):all.PixOffset(0, y+1)])
		}
		for part.Dy() > 1 && same(part.Min.Y) {
			part.Min.Y++
		}
		for part.Dy() > 1 && same(part.Max.Y-1) {
			part.Max.Y--
		}
		shown = all
		moving.Image = append(moving.Image, all.SubImage(part).(*image.Paletted))
		moving.Delay = append(moving.Delay, f.delay)
	}
	var content bytes.Buffer
	check.Must(t, gif.EncodeAll(&content, &moving))
	check.That(t, content.Len() <= largest, "the film %s has %d bytes, want at most %d", name, content.Len(), largest)
	check.Must(t, os.WriteFile(filepath.Join(*pictures, name+".gif"), content.Bytes(), 0o600))
}

func (f *film) colours() color.Palette {
	const most = 256
	times := map[color.Color]int{}
	for _, frame := range f.frames {
		bounds := frame.Bounds()
		for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
			for x := bounds.Min.X; x < bounds.Max.X; x++ {
				times[frame.At(x, y)]++
			}
		}
	}
	found := slices.SortedFunc(maps.Keys(times), func(a, b color.Color) int { return cmp.Compare(times[b], times[a]) })
	return found[:min(len(found), most)]
}

// picturesInABrowser renews the pictures that README.md shows: of a sale that is going on.
func picturesInABrowser(t *testing.T, c *chromium, _ *site) {
	s := start(t)
	s.administrator(t, "ada")
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for _, voucher := range []map[string]any{
		{
			"title": "A day at the baths", "stock": 200, "price": 2900, "face_value": 4900,
			"begin_at": in(-72 * time.Hour), "end_at": in(-48 * time.Hour),
		},
		{
			"title": "Cinema on Mondays", "stock": 500, "price": 500, "face_value": 1200, "begin_at": in(30 * time.Hour),
			"end_at": in(54 * time.Hour),
		},
		{"title": "Dinner for four", "stock": 0, "price": 9900, "face_value": 18000},
		{"title": "A book of your choice", "stock": 80, "price": 1500, "face_value": 3000, "state": "draft"},
		{"title": "A bicycle for a week", "stock": 50, "price": 1900, "face_value": 5900, "state": "paused"},
	} {
		s.onSale(t, voucher)
	}
	id := s.onSale(t, map[string]any{"title": "Coffee for two", "stock": 300, "end_at": in(2 * time.Hour)})
	path := "/console/vouchers/" + id
	b := c.person(t, s.url)
	b.signIn(t, "ada")
	telephone := b.another(t)
	b.run(t, "the sale", scheme("light"), b.visit(path), marked())
	telephone.run(t, "the sale", scheme("light"), chromedp.EmulateViewport(390, 844), telephone.visit(path), marked())
	b.run(t, "the window of the film", chromedp.EmulateViewport(1100, 760))
	for n := range 12 {
		order := s.paid(t, fmt.Sprint("early-", n), id)
		if n == 0 {
			s.call(t, http.MethodPost, "/admin/orders/"+order+"/refund", s.token(t, "admin", model.RoleAdmin), nil)
		}
	}
	next := 0
	due := 0.0
	sale := film{delay: 50}
	for quarter := range 160 { // of a second; a rush that grows and fades
		due += 4 * math.Exp(-math.Pow(float64(quarter-80)/32, 2))
		if n := int(due) - next; n > 0 {
			s.rush(t, id, next, n)
			next += n
		}
		s.buy(t, buyer(max(0, next-20)), id)                  // somebody who has one
		if quarter >= 60 && quarter < 100 && quarter%2 == 0 { // ten seconds of it
			sale.shoot(t, b)
		}
		poll.Pause(t.Context(), 250*time.Millisecond)
	}
	sale.write(t, "sale")
	telephone.picture(t, "telephone", 390, 844)
	b.run(t, "the overview", b.visit("/console"), visible("main .sale"))
	b.picture(t, "overview", 1100, 700)
	shop := c.person(t, s.url)
	shop.run(t, "the shop window", scheme("light"), shop.visit("/shop"), visible("#vouchers article"))
	shop.picture(t, "shop", 1000, 800)
	rush := s.onSale(t, map[string]any{"title": "Opening night", "stock": 300, "public_report": true, "begin_at": in(-time.Second)})
	s.rush(t, rush, 0, 900)
	s.call(t, http.MethodPatch, "/admin/vouchers/"+rush, s.token(t, "admin", model.RoleAdmin), map[string]any{"end_at": in(0)})
	check.Patiently(t, "all is counted", func() bool {
		_, replay := s.call(t, http.MethodGet, "/vouchers/"+rush+"/replay", "", nil)
		attempts, _ := replay["attempts"].(float64)
		return attempts >= 900
	})
	shop.run(t, "the sale, again", shop.visit("/shop/"+rush+"/replay"), visible("#picture svg .line"))
	shop.picture(t, "replay", 1100, 860)
}

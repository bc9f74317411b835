//go:build faults

//part:browser

package console_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"seckill/internal/workshop/check"
)

// The axe-core of testdata/axe; its README.md tells where it is from.
const (
	axeVersion = "4.14.1"
	axeHash    = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c" // SHA-256
)

// axeRun asks for the rules of WCAG 2.0 to 2.2, levels A and AA. That of the size of targets is off by default.
// What is in dialogs is looked at in each of them, opened as people see it.
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

// axe is the script that finds what keeps people from using a page.
func axe(t *testing.T) string {
	t.Helper()
	script := check.Value(os.ReadFile("testdata/axe/axe.min.js"))(t)
	if sum := sha256.Sum256(script); hex.EncodeToString(sum[:]) != axeHash {
		t.Fatalf("testdata/axe/axe.min.js is not that of axe-core %s", axeVersion)
	}
	return string(script)
}

// finds is what axe finds on the page in a scheme, by rule. The page's policy does not bind what the tools of the
// browser evaluate.
func (b *tab) finds(t *testing.T, script, inScheme, what string) map[string][]string {
	t.Helper()
	var version, result string
	b.run(t, what+" in "+inScheme, scheme(inScheme),
		chromedp.Evaluate(`window.axe?.version ?? ''`, &version))
	if version == "" {
		b.do(t, "axe", chromedp.Evaluate(script, nil), chromedp.Evaluate(`axe.version`, &version))
	}
	if version != axeVersion {
		t.Fatalf("axe is %s", version)
	}
	b.do(t, "axe on "+what+" in "+inScheme, chromedp.Evaluate(axeRun, &result, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
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

// Every page, on a telephone too: by Tab, in both schemes with axe, and in Chinese.
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
		for _, in := range []string{"light", "dark"} {
			for rule, nodes := range b.finds(t, script, in, what) {
				t.Errorf("%s in %s: axe finds %s:\n%s", what, in, rule, strings.Join(nodes, "\n"))
			}
		}
		b.fits(t, what)
	}
	stranger := c.person(t, s.url)
	look(stranger, view{"sign_in", "/console/sign-in"})
	stranger.run(t, "a wrong password", credentials("nobody", "a wrong password"), visible(".refusal"))
	look(stranger, view{"sign_in", ""})

	late := c.person(t, s.url)
	late.signIn(t, "ada")
	late.run(t, "a form whose session has ended", late.visit("/console/vouchers/new"), fill("#title", strings.Repeat("Donaudampfschiff", 9)),
		fill("#price", "1"), fill("#face_value", "1"), fill("#stock", "1"),
		network.ClearBrowserCookies(), leads(press("Create")), visible("#password"))
	look(late, view{"sign_in", ""})
	late.run(t, "signed in again", credentials("ada", password), visible(`input[name="again"] ~ button`))
	look(late, view{"typed", ""})
	late.run(t, "back to the form", leads(press("Back to the form")), until(`document.querySelector("#title").value.startsWith("Donaudampfschiff")`))

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
	b.run(t, "a code that is wrong", b.visit("/console/redeem"), fill("#code", "x"), leads(press("Use the code")), visible(".refusal"))
	look(b, view{"redeem", ""})
	b.controlled(t, script)
	broken := damagedShop(t, c)
	for _, v := range damagedViews() {
		look(broken, v)
	}

	b.run(t, "Chinese", b.visit("/console"), click(`header button[name="to"]`), until(`document.documentElement.lang === "zh"`))
	for _, v := range views {
		var said string
		b.run(t, "Chinese "+v.path, b.visit(v.path), until(`document.readyState === "complete" && document.documentElement.lang === "zh"`), chromedp.Evaluate(`document.body.innerText`, &said))
		if found := foreign("zh", said); len(found) > 0 {
			t.Errorf("Chinese %s says %q", v.path, found)
		}
		b.fits(t, "Chinese "+v.path)
	}
	files := check.Value(filepath.Glob("pages/*.html"))(t)
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".html"); name != "layout" && !seen[name] {
			t.Errorf("no view here shows %s", file)
		}
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
	if !slices.Equal(found, []string{"color-contrast", "image-alt"}) {
		t.Errorf("on a page with an image without a text and a text without contrast axe finds %q", found)
	}
}

// damagedShop is a tab of somebody who has signed in to the console of such a shop.
func damagedShop(t *testing.T, c *chromium) *tab {
	t.Helper()
	session, handler := damagedConsole(t)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	place := check.Value(url.Parse(session.site.url))(t)
	b := c.person(t, server.URL)
	for _, cookie := range session.client.Jar.Cookies(place) {
		b.run(t, "the session", network.SetCookie(cookie.Name, cookie.Value).WithURL(server.URL))
	}
	return b
}

package console_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"html"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestHeaders(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	for path, kind := range map[string]string{
		"/console": "text/html; charset=utf-8", "/console/sign-in": "", "/console/nothing": "text/html; charset=utf-8",
		"/console/static/console.css": "text/css; charset=utf-8", "/console/static/console.js": "text/javascript; charset=utf-8",
		"/console/static/nothing": "text/html; charset=utf-8",
	} {
		got := b.get(t, path)
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got.header.Get(name) != value {
				t.Errorf("%s: %s is %q", path, name, got.header.Get(name))
			}
		}
		policy := got.header.Get("Content-Security-Policy")
		want(t, policy, "default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'")
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		if kind != "" && got.header.Get("Content-Type") != kind {
			t.Errorf("%s: Content-Type is %q", path, got.header.Get("Content-Type"))
		}
		if caching := got.header.Get("Cache-Control"); caching != "no-store" && !strings.HasPrefix(path, "/console/static/console") {
			t.Errorf("%s: Cache-Control is %q", path, caching)
		}
		inline := regexp.MustCompile(`<style|style=|<script>|<script [^>]*>[^<]| on[a-z]+=|javascript:|(src|href)="(https?:)?//`)
		if found := inline.FindString(got.body); found != "" && strings.HasPrefix(got.header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: the page has %q, which the policy forbids", path, found)
		}
	}
	file := b.get(t, "/console/static/console.css")
	if again := b.get(t, "/console/static/console.css", "If-None-Match", file.header.Get("ETag")); again.status != http.StatusNotModified {
		t.Errorf("a file that is there already is sent again: %d", again.status)
	}
}

// A browser is led to the console, or to the documentation where there is none; programs hear at / what they have
// always heard.
func TestRoot(t *testing.T) {
	common := shared(t)
	t.Parallel()
	for to, s := range map[string]*site{"/console": common, "/api/v1/docs": start(t, "SECKILL_CONSOLE=off")} {
		b := s.browser(t)
		got := b.get(t, "/")
		if got.header.Get("Location") != to {
			t.Errorf("a browser gets %d to %q, want %q", got.status, got.header.Get("Location"), to)
		}
		for _, accept := range []string{"*/*", "application/json"} {
			got := b.get(t, "/", "Accept", accept)
			if got.status != http.StatusNotFound || got.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %d %s", accept, got.status, got.body)
			}
		}
		for path, status := range map[string]int{"/console": http.StatusSeeOther, "/shop": http.StatusOK} {
			got := b.get(t, path)
			if to != "/console" && (got.status != http.StatusNotFound || got.header.Get("Content-Type") != "application/problem+json") || to == "/console" && got.status != status {
				t.Errorf("%s is %d %s", path, got.status, got.body)
			}
		}
	}
}

func TestLanguages(t *testing.T) {
	s := shared(t)
	t.Parallel()
	for asked, language := range map[string]string{
		"": "en", "zh-CN,zh;q=0.9,en;q=0.8": "zh", "zh-Hant-TW": "zh", "en-US,en;q=0.5": "en", "de": "en", "de,zh;q=0.3": "zh", "!!": "en",
	} {
		if got := s.browser(t).get(t, "/console/sign-in", "Accept-Language", asked); !strings.Contains(got.body, `<html lang="`+language+`" `) {
			t.Errorf("%q is answered otherwise than in %s", asked, language)
		}
	}
	b := s.browser(t)
	want(t, b.page(t, "/console/sign-in"), "Sign in")
	want(t, b.act(t, "/console/language", url.Values{"to": {"zh"}, "back": {"/console/sign-in"}}), `lang="zh"`, "登录")
	want(t, b.signIn(t, "nobody", "a wrong password").body, "用户名或密码错误。")
	b.post(t, "/console/language", url.Values{"to": {"xx"}}).is(t, http.StatusUnprocessableEntity)
}

// texts are the words of a language.
func texts(t *testing.T, tag string) (words map[string]string) {
	t.Helper()
	check.Must(t, json.Unmarshal(check.Value(os.ReadFile("../../internal/words/"+tag+".json"))(t), &words))
	return words
}

// Whatever a page or the code says has its Chinese text, with the same arguments.
func TestEveryTextIsTranslated(t *testing.T) {
	t.Parallel()
	chinese := texts(t, "zh")
	verbs := regexp.MustCompile(`%[a-z]`)
	found := 0
	for pattern, text := range map[string]*regexp.Regexp{
		"pages/*.html":              regexp.MustCompile(`\bt "([^"]+)"`),
		"../../internal/words/*.go": regexp.MustCompile(`\.Text\("([^"]+)"`),
		"*.go":                      regexp.MustCompile(`(?:language\.Text\(|Detail: |Words: |NotFound\(|Invalid\([^,]+, |":\s+)"([^"]+)"`),
	} {
		for _, file := range check.Value(filepath.Glob(pattern))(t) {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, match := range text.FindAllStringSubmatch(string(check.Value(os.ReadFile(file))(t)), -1) {
				key := match[1]
				if strings.Contains(match[0], "NotFound") {
					key = "There is no such " + key + "."
				}
				if strings.Contains(key, "%s") && strings.HasSuffix(file, ".go") {
					continue // the text depends on the currency
				}
				found++
				translated, ok := chinese[key]
				if a, b := verbs.FindAllString(key, -1), verbs.FindAllString(translated, -1); !ok || !slices.Equal(a, b) {
					t.Errorf("%s: %q has no Chinese text, or one with other arguments: %q", file, key, translated)
				}
			}
		}
	}
	if found < 80 {
		t.Errorf("only %d texts were found: the pattern is wrong", found)
	}
}

func TestTextStaysText(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	const title = `</title><script>alert(1)</script>"'><img src=x onerror=alert(2)>`
	id := b.create(t, "title", title, "description", "</textarea><script>alert(3)</script>")
	for _, path := range []string{"/console", "/console/vouchers/" + id, "/console/vouchers/" + id + "/edit"} {
		page := b.page(t, path)
		for _, wrong := range []string{"<script>alert", "<img", `"'><`} {
			if strings.Contains(page, wrong) {
				t.Errorf("%s: %q is not text:\n%s", path, wrong, page)
			}
		}
		want(t, page, "&lt;script&gt;alert(1)")
	}
	// What is wrong in a request is not repeated as a part of the page either.
	if got := b.get(t, "/console?phase=<script>alert(4)</script>&done=<b>"); strings.Contains(got.body, "<script>alert") || strings.Contains(got.body, "<b>\"") {
		t.Errorf("a link writes into the page: %s", got.body)
	}
}

func TestAnErrorNamesItsRequest(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	got := b.get(t, "/console/vouchers/unknown", "X-Request-Id", "the-request-of-this-test")
	got.is(t, http.StatusNotFound)
	want(t, got.body, "There is no such voucher.", "the-request-of-this-test")
	got = b.post(t, "/console/vouchers/new", url.Values{"description": {strings.Repeat("x", 70_000)}})
	got.is(t, http.StatusRequestEntityTooLarge)
}

// Text has a contrast of 4.5 to 1 on its ground, and a line of a chart 3 to 1, in both
// schemes (WCAG 2.2, 1.4.3 and 1.4.11).
func TestContrast(t *testing.T) {
	t.Parallel()
	style := check.Value(os.ReadFile("static/console.css"))(t)
	colours := map[string][][2]string{}
	for _, match := range regexp.MustCompile(`--(\w+): light-dark\((#\w{6}), (#\w{6})\)`).FindAllStringSubmatch(string(style), -1) {
		colours[match[1]] = append(colours[match[1]], [2]string{match[2], match[3]})
	}
	for _, pair := range []struct {
		over, under string
		least       float64
	}{
		{"ink", "ground", 4.5},
		{"faint", "ground", 4.5},
		{"link", "ground", 4.5},
		{"good", "ground", 4.5},
		{"bad", "ground", 4.5},
		{"warm", "ground", 4.5},
		{"link", "raised", 4.5},
		{"faint", "raised", 4.5},
		{"line", "ground", 3},
		{"ink", "raised", 4.5},
		{"good", "raised", 4.5},
		{"bad", "raised", 4.5},
		{"warm", "raised", 4.5},
		{"line", "raised", 3},
		{"stroke", "raised", 3},
		{"stroke", "ground", 3},
	} {
		if len(colours[pair.over]) == 0 {
			t.Errorf("there is no colour %s", pair.over)
		}
		for _, over := range colours[pair.over] {
			for scheme, under := range colours[pair.under][0] {
				if got := contrast(t, over[scheme], under); got < pair.least {
					t.Errorf("%s %s on %s %s: %.2f", pair.over, over[scheme], pair.under, under, got)
				}
			}
		}
	}
}

// contrast is the ratio of two colours (WCAG 2.2, "contrast ratio").
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	light := func(colour string) float64 {
		number := check.Value(strconv.ParseUint(colour[1:], 16, 32))(t)
		sum := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			part := float64(number>>(16-8*i)&0xff) / 255
			if part <= 0.04045 {
				part /= 12.92
			} else {
				part = math.Pow((part+0.055)/1.055, 2.4)
			}
			sum += weight * part
		}
		return sum + 0.05
	}
	return max(light(a), light(b)) / min(light(a), light(b))
}

// What is a word of programs has a text in both languages: what administrators do, and what
// becomes of money. (What is an English word already needs none there.)
func TestEveryWordOfProgramsHasItsText(t *testing.T) {
	t.Parallel()
	english, chinese := texts(t, "en"), texts(t, "zh")
	found := 0
	for file, word := range map[string]*regexp.Regexp{
		"account.go": regexp.MustCompile(`Action\w+ += "([^"]+)"`),
		"payment.go": regexp.MustCompile(`Refund\w+ += "([A-Z_]+)"`),
	} {
		for _, match := range word.FindAllStringSubmatch(string(check.Value(os.ReadFile("../../model/"+file))(t)), -1) {
			found++
			if english[match[1]] == "" || chinese[match[1]] == "" {
				t.Errorf("model/%s: %q has no text", file, match[1])
			}
		}
	}
	if found < 14 {
		t.Errorf("only %d words were found: the pattern is wrong", found)
	}
	words := []string{string(model.PaymentStarted), string(model.PaymentSucceeded), string(model.PaymentFailed)}
	for _, status := range model.RefundStatuses() {
		words = append(words, string(status))
	}
	for _, status := range model.OrderStatuses() {
		words = append(words, string(status))
	}
	for _, word := range words {
		if chinese[word] == "" {
			t.Errorf("%q has no Chinese text", word)
		}
	}
}

// What pages load is pinned: it is what was copied from npm, byte for byte (make assets).
func TestAssetsAreThoseOfTheirSums(t *testing.T) {
	t.Parallel()
	sums := string(check.Value(os.ReadFile("static/lib/SHA256SUMS"))(t))
	files := check.Value(filepath.Glob("static/lib/*"))(t)
	for _, file := range files {
		sum := sha256.Sum256(check.Value(os.ReadFile(file))(t))
		line := hex.EncodeToString(sum[:]) + "  " + filepath.Base(file) + "\n"
		if filepath.Base(file) != "SHA256SUMS" && !strings.Contains(sums, line) {
			t.Errorf("%s is another than its sum says", file)
		}
	}
	check.Equal(t, "sums", strings.Count(sums, "\n"), len(files)-1)
}

// A first visit loads at most 250 KB, compressed, of the page itself too; all of it is from this server.
func TestThePagesAreLight(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	for _, path := range []string{"/console", "/console/vouchers/" + b.create(t), "/console/redeem", "/shop"} {
		page := b.page(t, path)
		weight := len(page)
		seen := map[string]bool{}
		for _, found := range regexp.MustCompile(`(?:href|src)="(/console/static/[^"#]+)`).FindAllStringSubmatch(page, -1) {
			if seen[found[1]] {
				continue
			}
			seen[found[1]] = true
			got := b.get(t, html.UnescapeString(found[1]), "Accept-Encoding", "gzip")
			if got.is(t, http.StatusOK); got.header.Get("Content-Encoding") != "gzip" || !strings.Contains(got.header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: %v", found[1], got.header)
			}
			weight += len(got.body)
		}
		if len(seen) < 5 || weight > 250_000 {
			t.Errorf("%s and its %d files weigh %d bytes", path, len(seen), weight)
		}
		t.Logf("%s and its %d files weigh %d bytes", path, len(seen), weight)
	}
}

// Money is said as browsers say it, so that pages of the server and scripts agree.
func TestMoneyIsSaidOneWay(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	id := b.create(t, "price", "1234567.80")
	want(t, b.get(t, "/console/vouchers/"+id, "Accept-Language", "en").body, "CN¥1,234,567.80")
	want(t, b.get(t, "/console/vouchers/"+id, "Accept-Language", "zh").body, "<dd>¥1,234,567.80")
}

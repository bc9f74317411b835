package console_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
			check.Equal(t, path+": "+name, got.header.Get(name), value)
		}
		policy := got.header.Get("Content-Security-Policy")
		want(t, policy, "default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'",
			"base-uri 'none'", "form-action 'self'")
		lacks(t, policy, "unsafe", "*")
		if kind != "" {
			check.Equal(t, path+": Content-Type", got.header.Get("Content-Type"), kind)
		}
		if !strings.HasPrefix(path, "/console/static/console") {
			check.Equal(t, path+": Cache-Control", got.header.Get("Cache-Control"), "no-store")
		}
		inline := regexp.MustCompile(`<style|style=|<script>|<script [^>]*>[^<]| on[a-z]+=|javascript:|(src|href)="(https?:)?//`)
		if strings.HasPrefix(got.header.Get("Content-Type"), "text/html") {
			check.Equal(t, path+": what the policy forbids", inline.FindString(got.body), "")
		}
	}
	file := b.get(t, "/console/static/console.css")
	b.get(t, "/console/static/console.css", "If-None-Match", file.header.Get("ETag")).is(t, http.StatusNotModified)
}

// A browser is led to the console, or to the documentation where there is none; programs get at / what they always got.
func TestRoot(t *testing.T) {
	common := shared(t)
	t.Parallel()
	for to, s := range map[string]*site{"/console": common, "/api/v1/docs": start(t, "SECKILL_CONSOLE=off")} {
		b := s.browser(t)
		unknown := func(got answer) {
			got.is(t, http.StatusNotFound)
			check.Equal(t, got.asked, got.header.Get("Content-Type"), "application/problem+json")
		}
		check.Equal(t, "a browser is led to", b.get(t, "/").header.Get("Location"), to)
		for _, accept := range []string{"*/*", "application/json"} {
			unknown(b.get(t, "/", "Accept", accept))
		}
		if to == "/console" {
			b.get(t, "/console").is(t, http.StatusSeeOther)
			b.get(t, "/shop").is(t, http.StatusOK)
		} else {
			unknown(b.get(t, "/console"))
			unknown(b.get(t, "/shop"))
		}
	}
}

func TestLanguages(t *testing.T) {
	s := shared(t)
	t.Parallel()
	for asked, language := range map[string]string{
		"": "en", "zh-CN,zh;q=0.9,en;q=0.8": "zh", "zh-Hant-TW": "zh", "en-US,en;q=0.5": "en", "de": "en", "de,zh;q=0.3": "zh", "!!": "en",
	} {
		s.browser(t).get(t, "/console/sign-in", "Accept-Language", asked).is(t, http.StatusOK,
			`<html lang="`+language+`" `)
	}
	b := s.browser(t)
	want(t, b.page(t, "/console/sign-in"), "Sign in")
	want(t, b.act(t, "/console/language", url.Values{"to": {"zh"}, "back": {"/console/sign-in"}}), `lang="zh"`, "登录")
	want(t, b.signIn(t, "nobody", "a wrong password").body, "用户名或密码错误。")
	b.post(t, "/console/language", url.Values{"to": {"xx"}}).is(t, http.StatusUnprocessableEntity)
}

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
				same := slices.Equal(verbs.FindAllString(key, -1), verbs.FindAllString(translated, -1))
				check.That(t, ok && same, "%s: %q has no Chinese text, or one with other arguments: %q", file, key,
					translated)
			}
		}
	}
	check.That(t, found >= 80, "only %d texts were found: the pattern is wrong", found)
}

func TestTextStaysText(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := s.signedIn(t, "ada")
	const title = `</title><script>alert(1)</script>"'><img src=x onerror=alert(2)>`
	id := b.create(t, "title", title, "description", "</textarea><script>alert(3)</script>")
	for _, path := range []string{"/console", "/console/vouchers/" + id, "/console/vouchers/" + id + "/edit"} {
		page := b.page(t, path)
		lacks(t, page, "<script>alert", "<img", `"'><`)
		want(t, page, "&lt;script&gt;alert(1)")
	}
	// What is wrong in a request is not repeated as a part of the page either.
	lacks(t, b.get(t, "/console?phase=<script>alert(4)</script>&done=<b>").body, "<script>alert", "<b>\"")
}

func TestAnErrorNamesItsRequest(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	got := b.get(t, "/console/vouchers/unknown", "X-Request-Id", "the-request-of-this-test")
	got.is(t, http.StatusNotFound, "There is no such voucher.", "the-request-of-this-test")
	b.post(t, "/console/vouchers/new", url.Values{"description": {strings.Repeat("x", 70_000)}}).is(t,
		http.StatusRequestEntityTooLarge)
}

// Text has a contrast of 4.5 to 1, and a chart's line 3 to 1, in both schemes (WCAG 2.2, 1.4.3 and 1.4.11).
func TestContrast(t *testing.T) {
	t.Parallel()
	style := check.Value(os.ReadFile("static/console.css"))(t)
	colours := map[string][][2]string{}
	for _, match := range regexp.MustCompile(`--(\w+): light-dark\((#\w{6}), (#\w{6})\)`).FindAllStringSubmatch(string(style), -1) {
		colours[match[1]] = append(colours[match[1]], [2]string{match[2], match[3]})
	}
	meets := func(least float64, names ...string) {
		for _, name := range names {
			check.That(t, len(colours[name]) > 0, "there is no colour %s", name)
			for _, over := range colours[name] {
				for _, ground := range []string{"ground", "raised"} {
					for scheme, under := range colours[ground][0] {
						got := contrast(t, over[scheme], under)
						check.That(t, got >= least, "%s %s on %s %s: %.2f", name, over[scheme], ground, under, got)
					}
				}
			}
		}
	}
	meets(4.5, "ink", "faint", "link", "good", "bad", "warm")
	meets(3, "line", "stroke")
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

// Words of programs have texts in both languages. What is an English word already needs none there.
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
			check.That(t, english[match[1]] != "" && chinese[match[1]] != "", "model/%s: %q has no text", file,
				match[1])
		}
	}
	check.That(t, found >= 14, "only %d words were found: the pattern is wrong", found)
	words := fmt.Sprintln(model.PaymentStarted, model.PaymentSucceeded, model.PaymentFailed, model.RefundStatuses(),
		model.OrderStatuses())
	for _, word := range regexp.MustCompile(`\w+`).FindAllString(words, -1) {
		check.That(t, chinese[word] != "", "%q has no Chinese text", word)
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
		check.That(t, filepath.Base(file) == "SHA256SUMS" || strings.Contains(sums, line),
			"%s is another than its sum says", file)
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
			got.is(t, http.StatusOK)
			check.Equal(t, found[1], got.header.Get("Content-Encoding"), "gzip")
			want(t, got.header.Get("Cache-Control"), "immutable")
			weight += len(got.body)
		}
		check.That(t, len(seen) >= 5 && weight <= 250_000, "%s and its %d files weigh %d bytes", path, len(seen),
			weight)
	}
}

// Money is said as browsers say it, so that pages of the server and scripts agree.
func TestMoneyIsSaidOneWay(t *testing.T) {
	s := shared(t)
	t.Parallel()
	b := s.signedIn(t, "ada")
	id := b.create(t, "price", "1234567.80", "face_value", "9999999")
	want(t, b.get(t, "/console/vouchers/"+id, "Accept-Language", "en").body, "CN¥1,234,567.80")
	want(t, b.get(t, "/console/vouchers/"+id, "Accept-Language", "zh").body, "<dd>¥1,234,567.80")
}

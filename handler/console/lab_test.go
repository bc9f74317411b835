package console_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"seckill/internal/lab"
	"seckill/internal/workshop/check"
)

// TestLab: whoever may change vouchers runs rows of the laboratory, one at a time, and sees two that have a wrong lock at once.
func TestLab(t *testing.T) {
	s := shared(t)
	t.Parallel()
	for _, level := range []string{"viewer", "cashier"} {
		b := s.signedIn(t, level)
		b.get(t, "/console/lab").is(t, http.StatusForbidden)
		b.post(t, "/console/lab", url.Values{"row": {"no lock"}}).is(t, http.StatusForbidden)
		check.That(t, !strings.Contains(b.page(t, "/console/system"), "/console/lab"), "a %s is led to the laboratory", level)
	}
	b := s.signedIn(t, "operator")
	want(t, b.page(t, "/console/system"), `href="/console/lab"`)
	list := b.page(t, "/console/lab")
	for _, row := range lab.Exhibits() {
		want(t, list, `<th scope="row">`+row.Name+`</th>`)
	}
	check.That(t, !strings.Contains(list, "<figure"), "a row is shown that was not run")
	b.post(t, "/console/lab", url.Values{"row": {"rats"}}).is(t, http.StatusNotFound)

	wrong := b.act(t, "/console/lab", url.Values{"row": {"no lock"}})
	want(t, wrong, "The row has run.", "broken as expected", "Two had the lock at the same time", `class="twice"`, "A had the lock from", "B had the lock from", "has written")
	right := b.act(t, "/console/lab", url.Values{"row": {"redis hash"}})
	want(t, right, `well">correct`, "late unlock", "hears that the lock is lost", "is killed", "Lost updates: 0, oversold: 0.")
	chinese := b.get(t, "/console/lab?row=redis+hash", "Accept-Language", "zh").body
	_, chinese, _ = strings.Cut(chinese, "<main")
	chinese, _, _ = strings.Cut(chinese, "</main>")
	said := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(chinese, "")
	if english := regexp.MustCompile(`[a-z]{2,} [a-z]{2,}[^<]*`).FindString(said); english != "" {
		t.Errorf("the Chinese page says %q", english)
	}

	check.Eventually(t, "a second run beside one is refused", func() (refused bool) {
		ended := make(chan answer)
		go func() { ended <- b.post(t, "/console/lab", url.Values{"row": {"setnx, re-entered"}}) }()
		for {
			select {
			case <-ended:
				return refused
			default:
				refused = refused || b.post(t, "/console/lab", url.Values{"row": {"no lock"}}).status == http.StatusConflict
			}
		}
	})
}

// TestEveryTextOfTheLaboratoryIsTranslated: what rows say, and what the source says of workers, interleavings and verdicts.
func TestEveryTextOfTheLaboratoryIsTranslated(t *testing.T) {
	t.Parallel()
	chinese := texts(t, "zh")
	said := []string{}
	for _, row := range lab.Exhibits() {
		said = append(said, row.Name, row.Why)
		if row.Cure != "" {
			said = append(said, row.Cure)
		}
	}
	rows := len(said)
	text := regexp.MustCompile(`(?:point\w+ +point = |attack\{name: |name :?= |Verdict\w+ +Verdict = )"([^"]+)"`)
	for _, file := range check.Value(filepath.Glob("../../internal/lab/*.go"))(t) {
		for _, match := range text.FindAllStringSubmatch(string(check.Value(os.ReadFile(file))(t)), -1) {
			if !strings.HasSuffix(file, "_test.go") {
				said = append(said, match[1])
			}
		}
	}
	check.That(t, len(said) > rows+30, "only %d texts were found beside those of the rows", len(said)-rows)
	for _, text := range said {
		check.That(t, chinese[text] != "", "%q has no Chinese text", text)
	}
}

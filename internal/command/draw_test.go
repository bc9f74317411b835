package command

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// A draw is checked from what the server publishes, and one that was tampered with afterwards does not hold.
func TestDrawVerify(t *testing.T) {
	t.Parallel()
	instance, cfg := started(t)
	s := counterOf(t, instance, cfg)
	voucher := s.Create(t, map[string]any{"stock": 2, "allocation": "draw"}).ID
	verify := func(more ...string) called {
		return call(t, nil, "", append([]string{"draw", "verify", "--url", instance.BaseURL(), "--voucher", voucher}, more...)...)
	}
	proof := func() model.Draw {
		return remote.Decode[model.Draw](t, s.Insist(t, http.MethodGet, "/vouchers/"+voucher+"/draw", "", nil))
	}
	var leaf string
	for n := range 4 {
		got := s.buys(t, fmt.Sprint("user-", n), voucher)
		check.Equal(t, "entered", got.Status, http.StatusAccepted)
		leaf = remote.Decode[model.Entry](t, got).Leaf
	}
	commitment := proof().Commitment
	verify().shows(exitError, "not drawn yet")
	begin, end := time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	got := s.Insist(t, http.MethodPatch, "/admin/vouchers/"+voucher, s.Admin(t), map[string]any{"begin_at": begin, "end_at": end})
	check.Equal(t, "the sale ends", got.Status, http.StatusOK)
	check.Patiently(t, "it is drawn", func() bool { return proof().DrawnAt != nil })
	verify("--commitment", commitment, "--leaf", leaf).shows(exitOK, "holds: 4 entries, the first 2", "has place ")
	behindTLS(t, instance.BaseURL(), voucher)
	script := check.Value(os.ReadFile("../../docs/draw.md"))(t)
	program := regexp.MustCompile("(?s)```python\n(.*?)```").FindSubmatch(script)
	check.That(t, program != nil, "docs/draw.md has no Python")
	entry := remote.Decode[model.Entry](t, s.Insist(t, http.MethodGet, "/vouchers/"+voucher+"/entry", s.Token(t, "user-3", model.RoleUser), nil))
	python := func() (string, error) {
		said, err := exec.CommandContext(check.Context(t), "python3", "-c", string(program[1]), instance.BaseURL(), voucher, entry.Nonce, "user-3").CombinedOutput()
		return string(said), err
	}
	if said, err := python(); err != nil || !strings.Contains(said, "holds: 4 entries, the first 2") || !strings.Contains(said, "has place ") {
		t.Errorf("the Python of docs/draw.md: %v %s", err, said)
	}
	got = s.Insist(t, http.MethodPatch, "/admin/vouchers/"+voucher, s.Admin(t), map[string]any{"state": model.VoucherArchived})
	check.Equal(t, "the voucher is archived", got.Status, http.StatusOK)
	check.Equal(t, "nobody sees it", s.Insist(t, http.MethodGet, "/vouchers/"+voucher, "", nil).Status, http.StatusNotFound)
	verify("--commitment", commitment, "--leaf", leaf).shows(exitOK)
	for _, wrong := range [][]string{{"--commitment", strings.Repeat("0", 64)}, {"--leaf", strings.Repeat("0", 64)}} {
		verify(wrong...).shows(exitError)
	}
	ofDatabase(t, cfg, "UPDATE draw_places SET place = CASE place WHEN 1 THEN -3 WHEN 3 THEN -1 ELSE place END WHERE voucher_id = ?", voucher)
	ofDatabase(t, cfg, "UPDATE draw_places SET place = -place WHERE place < 0 AND voucher_id = ?", voucher)
	verify().shows(exitError, "place 1 belongs to")
	if said, err := python(); err == nil || !strings.Contains(said, "another order") {
		t.Errorf("a moved winner, in Python: %v %s", err, said)
	}
	for _, damage := range []struct{ statement, said string }{
		{"DELETE FROM draw_places WHERE place = 2 AND voucher_id = ?", "rows of draw_places: 3, and there should be 4"},
		{"DELETE FROM draw_entries WHERE voucher_id = ?", "rows of draw_entries: 0, and there should be 4"},
		{"DELETE FROM draws WHERE voucher_id = ?", "the row of draws, with the secret, is not there"},
	} {
		ofDatabase(t, cfg, damage.statement, voucher)
		for _, asked := range [][]string{{"audit"}, {"audit", "--repair", "--url", instance.BaseURL()}} {
			call(t, in(cfg.DataDir), "", asked...).shows(exitError, damage.said)
		}
	}
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/entries") {
			fmt.Fprint(w, `{"items":[],"next_cursor":"1"}`)
			return
		}
		fmt.Fprint(w, `{"algorithm":"seckill-draw-1","entries":1,"drawn_at":"2026-11-11T10:00:00Z","secret":"00"}`)
	}))
	defer endless.Close()
	call(t, nil, "", "draw", "verify", "--url", endless.URL, "--voucher", voucher).shows(exitError, "does not hold")
	for _, misuse := range []string{"draw", "draw verify", "draw verify --url x --voucher v", "draw verify --url http://127.0.0.1:1"} {
		call(t, nil, "", strings.Fields(misuse)...).shows(exitUsage)
	}
}

// behindTLS checks a draw through a proxy whose authority the machine does not know.
func behindTLS(t *testing.T, base, voucher string) {
	t.Helper()
	proxy := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(check.Value(url.Parse(base))(t)))
	defer proxy.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	check.Must(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw}), 0o600))
	verify := []string{"draw", "verify", "--url", proxy.URL, "--voucher", voucher}
	call(t, nil, "", verify...).shows(exitError, "certificate")
	call(t, nil, "", append(verify, "--cacert", authority)...).shows(exitOK)
	for file, code := range map[string]int{authority + ".absent": exitError, "draw_test.go": exitUsage} {
		call(t, nil, "", append(verify, "--cacert", file)...).shows(code, "--cacert")
	}
}

package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"seckill/config"
	"seckill/internal/app"
	"seckill/internal/testserver"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

func TestMain(m *testing.M) { testserver.Main(m) }

const (
	secret   = "a secret of the tests, 32 bytes or more"
	password = "a password of the tests"
)

// site is an embedded server in this process, with the real services behind its console.
type site struct {
	cfg config.Config
	url string
	log *check.Log
}

// start runs a server until the test ends; environ adds to its settings.
func start(t testing.TB, environ ...string) *site {
	t.Helper()
	cfg, err := config.Load(append([]string{
		"SECKILL_DATA_DIR=" + t.TempDir(), "SECKILL_JWT_SECRET=" + secret, "SECKILL_HTTP_ADDR=127.0.0.1:0",
		"SECKILL_OPS_ADDR=127.0.0.1:0", "SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0",
	}, environ...))
	check.Must(t, err)
	s := &site{cfg: cfg, log: &check.Log{}}
	instance, err := app.Start(t.Context(), cfg, s.log.Logger())
	check.Must(t, err)
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel() // nobody has to notice
		if err := instance.Stop(now); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	s.url = instance.BaseURL()
	return s
}

// administrator makes an administrator's account.
func (s *site) administrator(t testing.TB, name string) {
	t.Helper()
	db, err := app.OpenDatabase(t.Context(), s.cfg, slog.New(slog.DiscardHandler))
	check.Must(t, err)
	defer db.Close()
	_, err = db.Administrators().Create(t.Context(), name, password)
	check.Must(t, err)
}

// token is one of the API.
func (s *site) token(t testing.TB, user string, role model.Role) string {
	t.Helper()
	tokens, err := token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill")
	check.Must(t, err)
	signed, err := tokens.Issue(token.Claims{Subject: user, Role: role}, time.Hour)
	check.Must(t, err)
	return signed
}

// browser is one person's browser: it keeps cookies, and follows no redirect by itself.
type browser struct {
	site   *site
	client *http.Client
}

func (s *site) browser(t testing.TB) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	check.Must(t, err)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{s, &http.Client{
		Jar: jar, Transport: transport, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// signedIn is the browser of an administrator with an account of that name.
func (s *site) signedIn(t testing.TB, name string) *browser {
	t.Helper()
	s.administrator(t, name)
	b := s.browser(t)
	if got := b.signIn(t, name, password); got.status != http.StatusSeeOther {
		t.Fatalf("sign in: %d %s", got.status, got.body)
	}
	return b
}

func (b *browser) signIn(t testing.TB, name, password string) answer {
	t.Helper()
	return b.post(t, "/console/sign-in", url.Values{"username": {name}, "password": {password}})
}

// answer is a response that was read.
type answer struct {
	status int
	header http.Header
	body   string
}

func (b *browser) do(t testing.TB, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, b.site.url+path, body)
	check.Must(t, err)
	request.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := b.client.Do(request)
	check.Must(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	check.Must(t, err)
	return answer{response.StatusCode, response.Header, string(content)}
}

func (b *browser) get(t testing.TB, path string, headers ...string) answer {
	t.Helper()
	return b.do(t, http.MethodGet, path, nil, headers...)
}

// post sends a form, with the headers of a browser whose page is of the same origin.
func (b *browser) post(t testing.TB, path string, form url.Values, headers ...string) answer {
	t.Helper()
	headers = append([]string{
		"Content-Type", "application/x-www-form-urlencoded", "Origin", b.site.url, "Sec-Fetch-Site", "same-origin",
	}, headers...)
	return b.do(t, http.MethodPost, path, strings.NewReader(form.Encode()), headers...)
}

// page gets a page and checks that it is one.
func (b *browser) page(t testing.TB, path string) string {
	t.Helper()
	got := b.get(t, path)
	if got.status != http.StatusOK || !strings.HasPrefix(got.header.Get("Content-Type"), "text/html") {
		t.Fatalf("GET %s: %d %s", path, got.status, got.body)
	}
	return got.body
}

// act sends a form, expects it to be done, and returns the page that it leads to.
func (b *browser) act(t testing.TB, path string, form url.Values) string {
	t.Helper()
	got := b.post(t, path, form)
	if got.status != http.StatusSeeOther {
		t.Fatalf("POST %s: %d %s", path, got.status, got.body)
	}
	return b.page(t, got.header.Get("Location"))
}

// hidden is the value of a hidden field of a page.
func hidden(t testing.TB, page, name string) string {
	t.Helper()
	found := regexp.MustCompile(`<input type="hidden" name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the page has no hidden %s: %s", name, page)
	}
	return found[1]
}

// want checks that a page has every one of some texts.
func want(t testing.TB, page string, texts ...string) {
	t.Helper()
	shown := page
	if _, main, ok := strings.Cut(page, "<main"); ok {
		shown, _, _ = strings.Cut(main, "<footer>")
	}
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%q is not in the page:\n%s", text, shown)
		}
	}
}

// call asks the API with a token of its own.
func (s *site) call(t testing.TB, method, path, token string, body any) (status int, document map[string]any) {
	t.Helper()
	var content []byte
	if body != nil {
		var err error
		content, err = json.Marshal(body)
		check.Must(t, err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+"/api/v1"+path, bytes.NewReader(content))
	check.Must(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	check.Must(t, err)
	defer response.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	check.Must(t, json.NewDecoder(response.Body).Decode(&document))
	return response.StatusCode, document
}

// voucher is a voucher as the API shows it to administrators.
func (s *site) voucher(t testing.TB, id string) map[string]any {
	t.Helper()
	status, document := s.call(t, http.MethodGet, "/admin/vouchers/"+id, s.token(t, "admin", model.RoleAdmin), nil)
	if status != http.StatusOK {
		t.Fatalf("voucher %s: %d %v", id, status, document)
	}
	return document
}

// buy is a user's purchase over the API: OK, or the code of its refusal.
func (s *site) buy(t testing.TB, user, voucherID string) string {
	t.Helper()
	status, document := s.call(t, http.MethodPost, "/vouchers/"+voucherID+"/seckill", s.token(t, user, model.RoleUser), nil)
	if status == http.StatusCreated || status == http.StatusAccepted {
		return "OK"
	}
	return fmt.Sprint(document["code"])
}

// onSale is the form of a voucher that is on sale now, with changes to it in pairs.
func onSale(changes ...string) url.Values {
	now := time.Now().UTC()
	form := url.Values{
		"title": {"Coffee for two"}, "price": {"10.00"}, "face_value": {"25"}, "stock": {"10"}, "state": {"published"},
		"begin_at": {now.Add(-time.Hour).Format("2006-01-02T15:04:05")}, "end_at": {now.Add(time.Hour).Format("2006-01-02T15:04")},
		"zone": {"UTC"},
	}
	for i := 0; i < len(changes); i += 2 {
		form.Set(changes[i], changes[i+1])
	}
	return form
}

// create makes a voucher in the browser and returns its id.
func (b *browser) create(t testing.TB, changes ...string) string {
	t.Helper()
	form := onSale(changes...)
	form.Set("once", hidden(t, b.page(t, "/console/vouchers/new"), "once"))
	got := b.post(t, "/console/vouchers/new", form)
	id, ok := strings.CutPrefix(got.header.Get("Location"), "/console/vouchers/")
	id, _, _ = strings.Cut(id, "?")
	if got.status != http.StatusSeeOther || !ok {
		t.Fatalf("create: %d %s", got.status, got.body)
	}
	return id
}

// account is the id of an administrator's account.
func (s *site) account(t testing.TB, name string) string {
	t.Helper()
	db := check.Value(app.OpenDatabase(t.Context(), s.cfg, slog.New(slog.DiscardHandler)))(t)
	defer db.Close()
	for _, account := range check.Value(db.Administrators().List(t.Context()))(t) {
		if account.Username == name {
			return account.ID
		}
	}
	t.Fatalf("there is no administrator %s", name)
	return ""
}

package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/config"
	"seckill/internal/app"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
	"seckill/model"
)

func TestMain(m *testing.M) { testserver.Main(m) }

const (
	secret   = "a secret of the tests, 32 bytes or more"
	password = "a password of the tests"
)

// site is a server in this process: an embedded one with the real services behind its console, or only a console.
type site struct {
	cfg  config.Config
	url  string
	log  *check.Log
	dial func(context.Context, string, string) (net.Conn, error) // nil: as usual

	passwords sync.Mutex // one is computed at a time: nobody has to wait for a turn, and be refused
	mu        sync.Mutex
	sessions  map[string][]*http.Cookie // by name
}

func start(t testing.TB, environ ...string) *site {
	t.Helper()
	s, stop := launch(t, t.TempDir(), environ...)
	t.Cleanup(stop)
	return s
}

func launch(t testing.TB, dir string, environ ...string) (s *site, stop func()) {
	t.Helper()
	cfg, err := config.Load(append([]string{
		"SECKILL_DATA_DIR=" + dir, "SECKILL_JWT_SECRET=" + secret, "SECKILL_HTTP_ADDR=127.0.0.1:0",
		"SECKILL_OPS_ADDR=127.0.0.1:0", "SECKILL_RATE_USER=0", "SECKILL_RATE_ADDR=0",
	}, environ...))
	check.Must(t, err)
	s = &site{cfg: cfg, log: &check.Log{}, sessions: map[string][]*http.Cookie{}}
	instance := check.Value(app.Start(context.WithoutCancel(t.Context()), cfg, s.log.Logger()))(t)
	s.url = instance.BaseURL()
	return s, func() {
		now, cancel := context.WithCancel(context.Background())
		cancel() // nobody has to notice
		instance.Stop(now)
	}
}

// unheard is a receiver of events that none reaches.
func unheard() []string {
	return []string{"SECKILL_EVENTS_URLS=https://127.0.0.1:1/", "SECKILL_EVENTS_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
}

// lent is the server of all tests that look only at what they made: starting one takes longer than most of them.
var lent struct {
	sync.Mutex
	*site

	users int
	end   func() error
}

// shared is asked for before t.Parallel, so that the first test starts the server and the last one stops it.
func shared(t testing.TB) *site {
	t.Helper()
	lent.Lock()
	defer lent.Unlock()
	if lent.users == 0 {
		dir := check.Value(os.MkdirTemp("", "seckill-console-"))(t) //nolint:usetesting // it outlasts the first test
		var stop func()
		lent.site, stop = launch(t, dir)
		lent.end = func() error {
			stop()
			return os.RemoveAll(dir)
		}
	}
	lent.users++
	t.Cleanup(func() {
		lent.Lock()
		defer lent.Unlock()
		if lent.users--; lent.users == 0 {
			check.Must(t, lent.end())
		}
	})
	return lent.site
}

func (s *site) database(t testing.TB) *app.Database {
	t.Helper()
	db := check.Value(app.OpenDatabase(t.Context(), s.cfg, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { check.Must(t, db.Close()) })
	return db
}

func (s *site) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	check.Must(t, check.ErrorOf(s.database(t).SQL().ExecContext(t.Context(), statement, args...)))
}

// administrator makes an administrator's account, whose level is its name if that is one.
func (s *site) administrator(t testing.TB, name string) {
	t.Helper()
	level := model.Level(name)
	if !slices.Contains(model.Levels(), level) {
		level = model.LevelAdmin
	}
	_, err := s.database(t).Administrators().Create(t.Context(), name, password, level)
	check.Must(t, err)
}

func (s *site) token(t testing.TB, user string, role model.Role) string {
	t.Helper()
	tokens := check.Value(token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill"))(t)
	signed := check.Value(tokens.Issue(token.Claims{Subject: user, Role: role}, time.Hour))(t)
	return signed
}

// browser is one person's browser: it keeps cookies, and follows no redirect by itself.
type browser struct {
	site   *site
	client *http.Client
}

func (s *site) browser(t testing.TB) *browser {
	t.Helper()
	jar := check.Value(cookiejar.New(nil))(t)
	transport := &http.Transport{DialContext: s.dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{s, &http.Client{
		Jar: jar, Transport: transport, Timeout: check.Deadline,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// signedIn is the browser of an administrator of that name, with the session that there may be already.
func (s *site) signedIn(t testing.TB, name string) *browser {
	t.Helper()
	b := s.browser(t)
	place := check.Value(url.Parse(s.url))(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[name] == nil {
		s.administrator(t, name)
		b.signIn(t, name, password).leads(t)
		s.sessions[name] = b.client.Jar.Cookies(place)
	}
	b.client.Jar.SetCookies(place, s.sessions[name])
	return b
}

func (b *browser) signIn(t testing.TB, name, password string, headers ...string) answer {
	t.Helper()
	return b.signInTo(t, "", name, password, headers...)
}

func (b *browser) signInTo(t testing.TB, next, name, password string, headers ...string) answer {
	t.Helper()
	b.site.passwords.Lock()
	defer b.site.passwords.Unlock()
	return b.post(t, "/console/sign-in", url.Values{"username": {name}, "password": {password}, "next": {next}},
		headers...)
}

type answer struct {
	status int
	header http.Header
	body   string
	asked  string
}

func (a answer) is(t testing.TB, status int, texts ...string) {
	t.Helper()
	check.That(t, a.status == status, "%s is %d, want %d: %s", a.asked, a.status, status, a.body)
	want(t, a.body, texts...)
}

func (a answer) leads(t testing.TB) string {
	t.Helper()
	check.Need(t, a.status == http.StatusSeeOther, "%s is %d: %s", a.asked, a.status, a.body)
	return a.header.Get("Location")
}

// do sends a request, and again while the server says that a client should; a console over fakes says what it is told.
func (b *browser) do(t testing.TB, method, path, body string, headers ...string) (got answer) {
	t.Helper()
	check.Patiently(t, method+" "+path+" is decided", func() bool {
		request := check.Value(http.NewRequestWithContext(t.Context(), method, b.site.url+path,
			strings.NewReader(body)))(t)
		request.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
		for i := 0; i < len(headers); i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		response, err := b.client.Do(request)
		check.Must(t, err)
		defer response.Body.Close()
		got = answer{
			response.StatusCode, response.Header, string(check.Value(io.ReadAll(response.Body))(t)),
			method + " " + path,
		}
		return got.status != http.StatusServiceUnavailable || b.site.dial != nil
	})
	return got
}

func (b *browser) get(t testing.TB, path string, headers ...string) answer {
	t.Helper()
	return b.do(t, http.MethodGet, path, "", headers...)
}

// post sends a form, with the headers of a browser whose page is of the same origin.
func (b *browser) post(t testing.TB, path string, form url.Values, headers ...string) answer {
	t.Helper()
	headers = append([]string{
		"Content-Type", "application/x-www-form-urlencoded", "Origin", b.site.url, "Sec-Fetch-Site", "same-origin",
	}, headers...)
	return b.do(t, http.MethodPost, path, form.Encode(), headers...)
}

func (b *browser) page(t testing.TB, path string) string {
	t.Helper()
	got := b.get(t, path)
	isPage := got.status == http.StatusOK && strings.HasPrefix(got.header.Get("Content-Type"), "text/html")
	check.Need(t, isPage, "GET %s: %d %s", path, got.status, got.body)
	return got.body
}

func (b *browser) act(t testing.TB, path string, form url.Values) string {
	t.Helper()
	return b.page(t, b.post(t, path, form).leads(t))
}

func hidden(t testing.TB, page, name string) string {
	t.Helper()
	found := regexp.MustCompile(`<input type="hidden" name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
	check.Need(t, found != nil, "the page has no hidden %s: %s", name, page)
	return found[1]
}

func want(t testing.TB, page string, texts ...string) {
	t.Helper()
	shown := page
	if _, main, ok := strings.Cut(page, "<main"); ok {
		shown, _, _ = strings.Cut(main, "<footer>")
	}
	for _, text := range texts {
		check.That(t, strings.Contains(page, text), "%q is not in the page:\n%s", text, shown)
	}
}

func lacks(t testing.TB, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		check.That(t, !strings.Contains(page, text), "%q is in the page:\n%s", text, page)
	}
}

// call asks the API with a token of its own, and again while it says that a client should.
func (s *site) call(t testing.TB, method, path, token string, body any) (status int, document map[string]any) {
	t.Helper()
	content := check.Value(json.Marshal(body))(t)
	if body == nil {
		content = nil
	}
	check.Patiently(t, method+" "+path+" is decided", func() bool {
		request := check.Value(http.NewRequestWithContext(t.Context(), method, s.url+"/api/v1"+path,
			bytes.NewReader(content)))(t)
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		check.Must(t, err)
		defer response.Body.Close()
		defer http.DefaultClient.CloseIdleConnections()
		status, document = response.StatusCode, nil
		check.Must(t, json.NewDecoder(response.Body).Decode(&document))
		return status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests
	})
	return status, document
}

func (s *site) voucher(t testing.TB, id string) map[string]any {
	t.Helper()
	status, document := s.call(t, http.MethodGet, "/admin/vouchers/"+id, s.token(t, "admin", model.RoleAdmin), nil)
	check.Need(t, status == http.StatusOK, "voucher %s: %d %v", id, status, document)
	return document
}

// buy is a user's purchase over the API: OK, or the code of its refusal.
func (s *site) buy(t testing.TB, user, voucherID string) string {
	t.Helper()
	status, document := s.call(t, http.MethodPost, "/vouchers/"+voucherID+"/seckill", s.token(t, user, model.RoleUser),
		nil)
	if status == http.StatusCreated || status == http.StatusAccepted {
		return "OK"
	}
	return fmt.Sprint(document["code"])
}

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

func (b *browser) create(t testing.TB, changes ...string) string {
	t.Helper()
	form := onSale(changes...)
	form.Set("once", hidden(t, b.page(t, "/console/vouchers/new"), "once"))
	id, ok := strings.CutPrefix(b.post(t, "/console/vouchers/new", form).leads(t), "/console/vouchers/")
	check.Need(t, ok, "what was created is no voucher: %s", id)
	return id
}

func (s *site) account(t testing.TB, name string) string {
	t.Helper()
	for _, account := range check.Value(s.database(t).Administrators().List(t.Context()))(t) {
		if account.Username == name {
			return account.ID
		}
	}
	t.Fatalf("there is no administrator %s", name)
	return ""
}

func (s *site) onSale(t testing.TB, changes ...map[string]any) (id string) {
	t.Helper()
	now := time.Now().UTC()
	voucher := map[string]any{
		"title": "Coffee for two", "price": 1000, "face_value": 2500, "stock": 10,
		"begin_at": now.Add(-time.Hour).Format(time.RFC3339), "end_at": now.Add(24 * time.Hour).Format(time.RFC3339),
	}
	for _, change := range changes {
		maps.Copy(voucher, change)
	}
	status, made := s.call(t, http.MethodPost, "/admin/vouchers", s.token(t, "admin", model.RoleAdmin), voucher)
	check.Need(t, status == http.StatusCreated, "create: %d %v", status, made)
	return fmt.Sprint(made["id"])
}

func (s *site) paid(t testing.TB, user, voucherID string) (orderID string) {
	t.Helper()
	check.Equal(t, "what is heard by "+user, s.buy(t, user, voucherID), "OK")
	orderID = s.orderOf(t, user, voucherID)
	s.pays(t, user, orderID)
	return orderID
}

func (s *site) pays(t testing.TB, user, orderID string) {
	t.Helper()
	status, started := s.call(t, http.MethodPost, "/orders/"+orderID+"/pay", s.token(t, user, model.RoleUser), nil)
	check.Need(t, status == http.StatusAccepted, "pay: %d %v", status, started)
	response, err := http.PostForm(fmt.Sprint(started["payment_url"]), url.Values{"decision": {"approve"}})
	check.Must(t, err)
	check.Must(t, response.Body.Close())
	check.Eventually(t, "the order is paid", func() bool {
		_, order := s.call(t, http.MethodGet, "/orders/"+orderID, s.token(t, user, model.RoleUser), nil)
		return order["status"] == "paid"
	})
}

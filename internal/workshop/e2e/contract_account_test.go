package e2e_test

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// object reads an answer as what is written in it, so that members a struct
// would default are seen to be there or not.
func object(t *testing.T, got api.Answer, status int) map[string]any {
	t.Helper()
	if contentType := got.Header.Get("Content-Type"); got.Status != status || contentType != "application/json" {
		t.Fatalf("%d %s %s, want %d", got.Status, contentType, got.Body, status)
	}
	return remote.Decode[map[string]any](t, got)
}

// members are the names of an object's members, sorted.
func members(o map[string]any) []string { return slices.Sorted(maps.Keys(o)) }

// instant reads a time that must be RFC 3339 in UTC.
func instant(t *testing.T, o map[string]any, member string) time.Time {
	t.Helper()
	text, _ := o[member].(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !strings.HasSuffix(text, "Z") {
		t.Errorf("%s = %q is no RFC 3339 time in UTC", member, text)
	}
	return at
}

const rightPassword = "correct horse"

func (a *app) register(t testing.TB, username string) {
	t.Helper()
	got := a.Insist(t, http.MethodPost, "/auth/register", "", map[string]string{"username": username, "password": rightPassword})
	if got.Status != http.StatusCreated {
		t.Fatalf("register %s: %d %s", username, got.Status, got.Body)
	}
}

// login is the answer to a login, once there is one for good: the machine may have much to hash.
func (a *app) login(t testing.TB, username, password string) api.Answer {
	t.Helper()
	return a.Insist(t, http.MethodPost, "/auth/login", "", map[string]string{"username": username, "password": password})
}

// session logs in and returns the token, and how long it is good for.
func (a *app) session(t testing.TB, username, password string) (token string, lasts time.Duration) {
	t.Helper()
	got := a.login(t, username, password)
	session := remote.Decode[struct {
		Token   string `json:"access_token"`
		Expires int    `json:"expires_in"`
	}](t, got)
	if got.Status != http.StatusOK {
		t.Fatalf("login of %s: %d %s", username, got.Status, got.Body)
	}
	return session.Token, time.Duration(session.Expires) * time.Second
}

// stayAway holds an answer to what a refusal for too many requests says, which is never more than 30 s.
func stayAway(t testing.TB, got api.Answer) {
	t.Helper()
	seconds, err := strconv.Atoi(got.Header.Get("Retry-After"))
	if got.Status != http.StatusTooManyRequests || got.Code() != model.CodeRateLimited || err != nil || seconds < 1 || seconds > 30 {
		t.Errorf("%d %s, Retry-After %q", got.Status, got.Body, got.Header.Get("Retry-After"))
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	anywhere(t, checkAccounts)
}

func checkAccounts(t *testing.T, in shop) {
	t.Helper()
	a, alice := in.elsewhere(t), in.name("Alice.W_1-x")
	credentials := map[string]any{"username": alice, "password": rightPassword}
	registered := object(t, a.Insist(t, http.MethodPost, "/auth/register", "", credentials), http.StatusCreated)
	if !slices.Equal(members(registered), []string{"id", "role", "username"}) || registered["username"] != alice || registered["role"] != "user" {
		t.Errorf("%v", registered)
	}
	credentials["username"] = strings.ToLower(alice) // without regard to case
	session := object(t, a.Insist(t, http.MethodPost, "/auth/login", "", credentials), http.StatusOK)
	token, _ := session["access_token"].(string)
	lasts, _ := session["expires_in"].(float64)
	if !slices.Equal(members(session), []string{"access_token", "expires_in", "token_type"}) || session["token_type"] != "Bearer" || lasts < 60 {
		t.Errorf("%v", session)
	}
	me := object(t, a.Call(t, http.MethodGet, "/auth/me", token, nil), http.StatusOK)
	if !maps.Equal(me, registered) {
		t.Errorf("me = %v, registered = %v", me, registered)
	}
	// A buyer needs no account, and nobody becomes an administrator by asking.
	stranger := object(t, a.Call(t, http.MethodGet, "/auth/me", a.Token(t, "github:42", model.RoleUser), nil), http.StatusOK)
	if stranger["id"] != "github:42" || stranger["role"] != "user" || stranger["username"] != nil {
		t.Errorf("%v", stranger)
	}
	refused(t, a.Call(t, http.MethodGet, "/admin/vouchers", token, nil), http.StatusForbidden, model.CodeForbidden)
	credentials["role"] = "admin"
	refused(t, a.Call(t, http.MethodPost, "/auth/register", "", credentials), http.StatusUnprocessableEntity, model.CodeValidation)

	for _, wrong := range []string{"correct horse ", "Correct horse", "", "x", strings.Repeat("x", 5000)} {
		refused(t, in.elsewhere(t).login(t, alice, wrong), http.StatusUnauthorized, model.CodeUnauthenticated)
	}
	for _, nobody := range []string{"nobody", "", "Älice", "a b", strings.Repeat("x", 5000), alice + "\x00"} {
		refused(t, in.elsewhere(t).login(t, nobody, rightPassword), http.StatusUnauthorized, model.CodeUnauthenticated)
	}
	for body, location := range map[string]string{
		`{"username":"ab","password":"correct horse"}`:                              "body.username",
		`{"username":"` + strings.Repeat("a", 33) + `","password":"correct horse"}`: "body.username",
		`{"username":"a b c","password":"correct horse"}`:                           "body.username",
		`{"username":"Bób","password":"correct horse"}`:                             "body.username",
		`{"username":"shorty","password":"123456789"}`:                              "body.password",
		`{"username":"longy","password":"` + strings.Repeat("p", 129) + `"}`:        "body.password",
		`{"username":"shorty"}`:                                                     "body.password",
	} {
		p := refused(t, a.Call(t, http.MethodPost, "/auth/register", "", body), http.StatusUnprocessableEntity, model.CodeValidation)
		if len(p.Errors) != 1 || p.Errors[0].Location != location {
			t.Errorf("%s: %v", body, p.Errors)
		}
	}
}

// TestWrongPasswordsLockNobodyOut tries passwords of an account, and of none, from an address each: both addresses are
// made to wait in the same words. The account's owner, who comes from another one, does not notice.
func TestWrongPasswordsLockNobodyOut(t *testing.T) {
	t.Parallel()
	within(t, "sync on servers", func(t *testing.T, a shop) {
		t.Helper()
		alice, owner := a.name("alice"), a.elsewhere(t)
		owner.register(t, alice)
		check.Volley(2, func(n int) {
			attacker, tried := a.elsewhere(t), map[string]string{"username": []string{alice, a.name("nobody")}[n], "password": "wrong horse"}
			check.Eventually(t, "the attacker is made to wait", func() bool {
				got := attacker.Call(t, http.MethodPost, "/auth/login", "", tried)
				if got.Status != http.StatusUnauthorized {
					stayAway(t, got)
				}
				return got.Status == http.StatusTooManyRequests
			})
		})
		owner.session(t, alice, rightPassword)
		for _, outcome := range []string{"OK", "UNAUTHENTICATED", "RATE_LIMITED"} {
			if name := `seckill_account_attempts_total{action="login",outcome="` + outcome + `"}`; !strings.Contains(a.metrics(t), name) {
				t.Errorf("there is no metric %s", name)
			}
		}
	})
}

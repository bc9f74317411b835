package e2e_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/model"
)

// object reads an answer as what is written in it, so that members a struct
// would default are seen to be there or not.
func object(t *testing.T, got answer, status int) map[string]any {
	t.Helper()
	if contentType := got.header.Get("Content-Type"); got.status != status || contentType != "application/json" {
		t.Fatalf("%d %s %s, want %d", got.status, contentType, got.body, status)
	}
	return decode[map[string]any](t, got)
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

func TestAccounts(t *testing.T) {
	t.Parallel()
	everywhere(t, nil, checkAccounts)
}

func checkAccounts(t *testing.T, a *app) {
	t.Helper()
	credentials := map[string]any{"username": "Alice.W_1-x", "password": "correct horse"}
	registered := object(t, a.call(t, http.MethodPost, "/auth/register", "", credentials), http.StatusCreated)
	if !slices.Equal(members(registered), []string{"id", "role", "username"}) || registered["username"] != "Alice.W_1-x" || registered["role"] != "user" {
		t.Errorf("%v", registered)
	}
	credentials["username"] = "alice.w_1-X" // without regard to case
	session := object(t, a.call(t, http.MethodPost, "/auth/login", "", credentials), http.StatusOK)
	token, _ := session["access_token"].(string)
	lasts, _ := session["expires_in"].(float64)
	if !slices.Equal(members(session), []string{"access_token", "expires_in", "token_type"}) || session["token_type"] != "Bearer" || lasts < 60 {
		t.Errorf("%v", session)
	}
	me := object(t, a.call(t, http.MethodGet, "/auth/me", token, nil), http.StatusOK)
	if !maps.Equal(me, registered) {
		t.Errorf("me = %v, registered = %v", me, registered)
	}
	// A buyer needs no account, and nobody becomes an administrator by asking.
	stranger := object(t, a.call(t, http.MethodGet, "/auth/me", a.token(t, "github:42", model.RoleUser), nil), http.StatusOK)
	if stranger["id"] != "github:42" || stranger["role"] != "user" || stranger["username"] != nil {
		t.Errorf("%v", stranger)
	}
	refused(t, a.call(t, http.MethodGet, "/admin/vouchers", token, nil), http.StatusForbidden, model.CodeForbidden)
	credentials["role"] = "admin"
	refused(t, a.call(t, http.MethodPost, "/auth/register", "", credentials), http.StatusUnprocessableEntity, model.CodeValidation)

	for _, wrong := range []string{"correct horse ", "Correct horse", "", "x", strings.Repeat("x", 5000)} {
		body := map[string]any{"username": "Alice.W_1-x", "password": wrong}
		refused(t, a.call(t, http.MethodPost, "/auth/login", "", body), http.StatusUnauthorized, model.CodeUnauthenticated)
	}
	for _, nobody := range []string{"nobody", "", "Älice", "a b", strings.Repeat("x", 5000), "alice.w_1-x\x00"} {
		body := map[string]any{"username": nobody, "password": "correct horse"}
		refused(t, a.call(t, http.MethodPost, "/auth/login", "", body), http.StatusUnauthorized, model.CodeUnauthenticated)
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
		p := refused(t, a.call(t, http.MethodPost, "/auth/register", "", body), http.StatusUnprocessableEntity, model.CodeValidation)
		if len(p.Errors) != 1 || p.Errors[0].Location != location {
			t.Errorf("%s: %v", body, p.Errors)
		}
	}
}

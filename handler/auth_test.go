package handler_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"seckill/internal/token"
	"seckill/model"
)

// unread is a body that fails the test when anybody reads it.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was asked for")
	return 0, io.EOF
}

// TestTokenBeforeBody: a stranger's body is not even asked for.
func TestTokenBeforeBody(t *testing.T) {
	t.Parallel()
	s := setup(t)
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	t.Cleanup(client.CloseIdleConnections)
	for _, call := range []struct {
		role   model.Role
		status int
		code   model.Code
	}{{"", 401, model.CodeUnauthenticated}, {model.RoleUser, 403, model.CodeForbidden}} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/api/v1/admin/vouchers", unread{t})
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Expect", "100-continue")
		if call.role != "" {
			request.Header.Set("Authorization", "Bearer "+s.token(t, "u", call.role))
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		wantProblem(t, answer{response.StatusCode, response.Header, string(body)}, call.status, call.code)
	}
}

func TestAuthorizationHeader(t *testing.T) {
	t.Parallel()
	s := setup(t)
	good := s.token(t, "u", model.RoleUser)
	other, err := token.New([]token.Key{{ID: "2", Secret: secret}}, "seckill", "seckill")
	if err != nil {
		t.Fatal(err)
	}
	unknownKey, err := other.Issue(token.Claims{Subject: "u", Role: model.RoleUser}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"", "Bearer", "Bearer ", "Basic " + good, good, "Bearer " + good + "x", "Bearer " + unknownKey, "Bearer " + good + " " + good} {
		got := s.do(t, http.MethodGet, "/api/v1/auth/me", "", "Authorization", value)
		wantProblem(t, got, http.StatusUnauthorized, model.CodeUnauthenticated)
		if got.header.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("WWW-Authenticate = %q", got.header.Get("WWW-Authenticate"))
		}
	}
	for _, value := range []string{"Bearer " + good, "bearer " + good, "Bearer  " + good} {
		got := s.do(t, http.MethodGet, "/api/v1/auth/me", "", "Authorization", value)
		if want := `{"id":"u","username":"name-of-u","role":"user"}` + "\n"; got.status != http.StatusOK || got.body != want {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
}

// TestBadTokenTakesNothingAway from what strangers may see.
func TestBadTokenTakesNothingAway(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var admins []bool
	s.fakes.getVoucher = func(_ context.Context, id string, admin bool) (model.Voucher, error) {
		admins = append(admins, admin)
		return voucher(id), nil
	}
	for _, value := range []string{"", "Bearer nonsense", "Bearer " + s.token(t, "u", model.RoleUser), "Bearer " + s.token(t, "a", model.RoleAdmin)} {
		if got := s.do(t, http.MethodGet, "/api/v1/vouchers/v1", "", "Authorization", value); got.status != http.StatusOK {
			t.Errorf("%q: %d", value, got.status)
		}
	}
	if len(admins) != 4 || admins[0] || admins[1] || admins[2] || !admins[3] {
		t.Errorf("who is an administrator: %v", admins)
	}
}

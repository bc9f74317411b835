// Package remote is a running service as its tests see it, over internal/api.
package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// Service is a running service, seen through HTTP.
type Service struct {
	URL    string // of its main listener
	Client *http.Client
	Tokens *token.Authority
	Groups []string // that the tokens name
}

// Client has so many connections from an address of this machine (empty: any), closed with the test.
func Client(t testing.TB, address string, connections int) *http.Client {
	t.Helper()
	dialer := &net.Dialer{}
	if address != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(address)}
	}
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, MaxIdleConns: connections, MaxIdleConnsPerHost: connections,
		},
		Timeout:       check.Deadline,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// Authority signs the tokens of a deployment that has this secret.
func Authority(secret string) (*token.Authority, error) {
	return token.New([]token.Key{{ID: "1", Secret: secret}}, "seckill", "seckill")
}

// Decode reads the body as T and fails the test when it is none.
func Decode[T any](t testing.TB, a api.Answer) T {
	t.Helper()
	var v T
	err := json.Unmarshal(a.Body, &v)
	check.Need(t, err == nil, "body of %d is not a %T: %v\n%s", a.Status, v, err, a.Body)
	return v
}

// Again tells whether the contract has a client repeat a call with this outcome.
func Again(got api.Answer, err error) bool { return api.Again(cmp.Or(err, got.Err())) }

// Insist repeats a request as the contract says until it is answered for good. Attempts have numbers, for instances.
func Insist(t testing.TB, what string, ask func(attempt int) (api.Answer, error)) (got api.Answer) {
	t.Helper()
	attempt := 0
	check.Patiently(t, what+" is answered for good", func() bool {
		var err error
		got, err = ask(attempt)
		attempt++
		return !Again(got, err)
	})
	return got
}

// Token is one for a user, good for an hour.
func (s Service) Token(t testing.TB, subject string, role model.Role) string {
	t.Helper()
	return check.Value(s.Tokens.Issue(token.Claims{Subject: subject, Role: role, Groups: s.Groups}, time.Hour))(t)
}

// Admin is an administrator's token.
func (s Service) Admin(t testing.TB) string {
	t.Helper()
	return s.Token(t, "admin", model.RoleAdmin)
}

// Send makes one request of the API; the path begins behind /api/v1.
func (s Service) Send(method, path, token string, body any, headers ...string) (api.Answer, error) {
	return api.Send(context.Background(), s.Client, method, s.URL+"/api/v1"+path, token, body, headers...)
}

// Call is Send for a request that must be answered.
func (s Service) Call(t testing.TB, method, path, token string, body any, headers ...string) api.Answer {
	t.Helper()
	got, err := s.Send(method, path, token, body, headers...)
	check.Need(t, err == nil, "%s %s: %v", method, path, err)
	return got
}

// Insist is Send for a request that may be told to come again.
func (s Service) Insist(t testing.TB, method, path, token string, body any, headers ...string) api.Answer {
	t.Helper()
	send := func(int) (api.Answer, error) { return s.Send(method, path, token, body, headers...) }
	return Insist(t, method+" "+path, send)
}

// Get asks for a path of the main listener, such as /readyz.
func (s Service) Get(path string) (api.Answer, error) {
	return api.Send(context.Background(), s.Client, http.MethodGet, s.URL+path, "", nil)
}

// Status is what a path of the main listener is answered with; 0 is no answer.
func (s Service) Status(path string) int {
	got, err := s.Get(path)
	if err != nil {
		return 0
	}
	return got.Status
}

// Place makes one request to buy.
func (s Service) Place(t testing.TB, voucherID, user string) (api.Answer, error) {
	t.Helper()
	return s.Send(http.MethodPost, "/vouchers/"+voucherID+"/seckill", s.Token(t, user, model.RoleUser), nil)
}

// Create creates a voucher; the fields given win over those of one on sale.
func (s Service) Create(t testing.TB, fields map[string]any) model.Voucher {
	t.Helper()
	body := map[string]any{
		"title": "Coffee for two", "price": 1000, "face_value": 2500, "stock": 10,
		"begin_at": time.Now().Add(-time.Hour).UTC(), "end_at": time.Now().Add(time.Hour).UTC(),
	}
	maps.Copy(body, fields)
	got := s.Insist(t, http.MethodPost, "/admin/vouchers", s.Admin(t), body)
	check.Need(t, got.Status == http.StatusCreated, "create voucher: %d %s", got.Status, got.Body)
	return Decode[model.Voucher](t, got)
}

// Audit asks for the conservation check.
func (s Service) Audit(t testing.TB, voucherID string) model.Audit {
	t.Helper()
	got := s.Insist(t, http.MethodGet, "/admin/vouchers/"+voucherID+"/audit", s.Admin(t), nil)
	check.Need(t, got.Status == http.StatusOK, "audit: %d %s", got.Status, got.Body)
	return Decode[model.Audit](t, got)
}

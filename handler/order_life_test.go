package handler_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/handler"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// redeem, refund and log are what stands behind three calls of administrators.
type (
	redeem func(adminID, code string) (model.Order, error)
	refund struct {
		request func(adminID, orderID string) (model.Refund, error)
		list    func(model.RefundQuery) (model.RefundPage, error)
	}
	adminLog func(model.AdminLogQuery) (model.AdminLogPage, error)
)

func (f redeem) Redeem(_ context.Context, adminID, code string) (model.Order, error) {
	return f(adminID, code)
}

func (f refund) Request(_ context.Context, adminID, orderID string) (model.Refund, error) {
	return f.request(adminID, orderID)
}

func (f refund) List(_ context.Context, q model.RefundQuery) (model.RefundPage, error) {
	return f.list(q)
}

func (f adminLog) List(_ context.Context, q model.AdminLogQuery) (model.AdminLogPage, error) {
	return f(q)
}

func TestRedemptions(t *testing.T) {
	t.Parallel()
	s := setup(t, func(o *handler.Options) {
		o.Redemptions = redeem(func(adminID, code string) (model.Order, error) {
			if code == "used" {
				return model.Order{}, &model.Error{Code: model.CodeIllegalState, Detail: "x", OrderStatus: model.OrderRedeemed, RedeemedBy: "till1", RedeemedAt: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
			}
			return model.Order{ID: "o1.v1", UserID: adminID, Status: model.OrderRedeemed, Code: code, SealedCode: "sealed"}, nil
		})
	})
	const path = "/api/v1/admin/redemptions"
	admin := s.as(t, "boss", model.RoleAdmin)
	got := s.do(t, http.MethodPost, path, `{"code":"7K3M-9QWD"}`, admin...)
	var order map[string]any
	check.Must(t, json.Unmarshal([]byte(got.body), &order))
	if got.status != http.StatusOK || order["status"] != "redeemed" || order["code"] != "7K3M-9QWD" || order["user_id"] != "boss" || strings.Contains(got.body, "ealed") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if p := wantProblem(t, s.do(t, http.MethodPost, path, `{"code":"used"}`, admin...), http.StatusConflict, model.CodeIllegalState); p.OrderStatus != "redeemed" || p.RedeemedBy != "till1" || p.RedeemedAt != "2030-01-02T03:04:05Z" {
		t.Errorf("%+v", p)
	}
	for _, body := range []string{`{}`, `{"code":""}`, `{"code":1}`, `{"code":"x","more":1}`, `{"code":"` + strings.Repeat("x", 129) + `"}`} {
		wantProblem(t, s.do(t, http.MethodPost, path, body, admin...), http.StatusUnprocessableEntity, model.CodeValidation)
	}
	wantProblem(t, s.do(t, http.MethodPost, path, `{"code":"x"}`, s.as(t, "u", model.RoleUser)...), http.StatusForbidden, model.CodeForbidden)
	if strings.Contains(s.log.String(), "7K3M") {
		t.Error("the log holds a code")
	}
}

func TestRefunds(t *testing.T) {
	t.Parallel()
	var asked model.RefundQuery
	s := setup(t, func(o *handler.Options) {
		o.Refunds = refund{
			request: func(adminID, orderID string) (model.Refund, error) {
				if orderID == "unpaid.v1" {
					return model.Refund{}, &model.Error{Code: model.CodeIllegalState, Detail: "x", OrderStatus: model.OrderUnpaid}
				}
				return model.Refund{ID: "r1", OrderID: orderID, Actor: adminID, Status: model.RefundPending, Amount: 1000, Currency: "CNY"}, nil
			},
			list: func(q model.RefundQuery) (model.RefundPage, error) {
				asked = q
				return model.RefundPage{}, nil
			},
		}
	})
	admin := s.as(t, "boss", model.RoleAdmin)
	got := s.do(t, http.MethodPost, "/api/v1/admin/orders/o1.v1/refund", "", admin...)
	var made model.Refund
	check.Must(t, json.Unmarshal([]byte(got.body), &made))
	if got.status != http.StatusAccepted || made.OrderID != "o1.v1" || made.Actor != "boss" || made.Status != model.RefundPending {
		t.Errorf("%d %s", got.status, got.body)
	}
	if p := wantProblem(t, s.do(t, http.MethodPost, "/api/v1/admin/orders/unpaid.v1/refund", "{}", admin...), http.StatusConflict, model.CodeIllegalState); p.OrderStatus != "unpaid" {
		t.Errorf("%+v", p)
	}
	wantProblem(t, s.do(t, http.MethodPost, "/api/v1/admin/orders/none/refund", "", admin...), http.StatusNotFound, model.CodeNotFound)
	wantProblem(t, s.do(t, http.MethodPost, "/api/v1/admin/orders/o1.v1/refund", "", s.as(t, "u", model.RoleUser)...), http.StatusForbidden, model.CodeForbidden)

	if got := s.do(t, http.MethodGet, "/api/v1/admin/refunds?status=failed&limit=5", "", admin...); got.status != http.StatusOK || strings.TrimSpace(got.body) != `{"items":[]}` {
		t.Errorf("%d %s", got.status, got.body)
	}
	check.Equal(t, "the query", asked, model.RefundQuery{Status: model.RefundFailed, Limit: 5})
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/admin/refunds?status=paid", "", admin...), http.StatusUnprocessableEntity, model.CodeValidation)
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/admin/refunds", "", s.as(t, "u", model.RoleUser)...), http.StatusForbidden, model.CodeForbidden)
}

func TestAdminLog(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s := setup(t, func(o *handler.Options) {
		o.AdminLog = adminLog(func(q model.AdminLogQuery) (model.AdminLogPage, error) {
			return model.AdminLogPage{NextCursor: "next", Items: []model.AdminChange{{
				At: at, Actor: q.Actor, Action: model.ActionVoucherCreate, Subject: "v1", After: json.RawMessage(`{"title":"x"}`),
			}}}, nil
		})
	})
	got := s.do(t, http.MethodGet, "/api/v1/admin/log?actor=issuer:7", "", s.as(t, "boss", model.RoleAdmin)...)
	want := `{"items":[{"at":"2030-01-02T03:04:05Z","actor":"issuer:7","action":"voucher.create","subject":"v1","after":{"title":"x"}}],"next_cursor":"next"}`
	if got.status != http.StatusOK || strings.TrimSpace(got.body) != want {
		t.Errorf("%d %s, want %s", got.status, got.body, want)
	}
	wantProblem(t, s.do(t, http.MethodGet, "/api/v1/admin/log", "", s.as(t, "u", model.RoleUser)...), http.StatusForbidden, model.CodeForbidden)
}

// TestOrdersAreSearchedOverHTTP: what is asked for gets to the search, and viewers see no codes.
func TestOrdersAreSearchedOverHTTP(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const path = "/api/v1/admin/orders"
	for level, sees := range map[model.Level]bool{model.LevelViewer: false, model.LevelCashier: true} {
		bearer := check.Value(s.tokens.Issue(token.Claims{Subject: "a", Role: model.RoleAdmin, Level: level}, time.Hour))(t)
		got := s.do(t, http.MethodGet, path+"?q=%20green%20tea%20&status=paid&limit=7&cursor=c", "", "Authorization", "Bearer "+bearer)
		got.is(t, http.StatusOK)
		want := model.OrderSearch{Words: "green tea", Status: model.OrderPaid, Limit: 7, Cursor: "c"}
		if s.fakes.searched.Words != want.Words || s.fakes.searched.Status != want.Status || s.fakes.searched.Limit != want.Limit || s.fakes.searched.Cursor != want.Cursor {
			t.Errorf("asked for %+v, want %+v", s.fakes.searched, want)
		}
		check.Equal(t, "a "+string(level)+" sees the code", strings.Contains(got.body, "SECRET"), sees)
	}
	admin := s.as(t, "a", model.RoleAdmin)
	for _, query := range []string{"?status=gone", "?limit=0", "?q=" + strings.Repeat("x", 201)} {
		wantProblem(t, s.do(t, http.MethodGet, path+query, "", admin...), http.StatusUnprocessableEntity, model.CodeValidation)
	}
}

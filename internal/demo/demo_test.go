//part:stores

package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"seckill/internal/api"
	"seckill/internal/token"
	"seckill/internal/workshop/check"
	"seckill/model"
)

type shop struct {
	mu      sync.Mutex
	stock   int64
	presses int
	rows    []model.Order

	// press answers one press of the button; nil sells honestly.
	press func(s *shop, user string) (status int, body any)
	// keep tells what has become of a promised order; nil sells in sync.
	keep   func(order model.Order) model.Order
	export func(rows []model.Order) []model.Order
	audit  func(a *model.Audit)
}

func (s *shop) sell(user string) (int, any) {
	if int64(len(s.rows)) >= s.stock {
		return http.StatusConflict, api.Problem{Status: 409, Code: "SOLD_OUT"}
	}
	return s.force(user)
}

func (s *shop) force(user string) (int, any) {
	order := model.Order{ID: fmt.Sprintf("o%d.v", len(s.rows)), VoucherID: "v", UserID: user, Status: model.OrderUnpaid}
	s.rows = append(s.rows, order)
	if s.keep != nil {
		order.Status = model.OrderProcessing
		return http.StatusAccepted, order
	}
	return http.StatusCreated, order
}

func (s *shop) look(path string) (int, any) {
	for _, order := range s.rows {
		if strings.HasSuffix(path, "/orders/"+order.ID) {
			return http.StatusOK, s.keep(order)
		}
	}
	return http.StatusNotFound, api.Problem{Status: 404, Code: "NOT_FOUND"}
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(status int, body any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	switch path := r.URL.Path; {
	case path == "/livez":
	case strings.HasSuffix(path, "/seckill"):
		s.presses++
		user := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		claims, err := authorityOfShop().Verify(r.Context(), user)
		if err != nil {
			answer(http.StatusUnauthorized, api.Problem{Code: "UNAUTHENTICATED"})
			return
		}
		if s.press != nil {
			status, body := s.press(s, claims.Subject)
			answer(status, body)
			return
		}
		status, body := s.sell(claims.Subject)
		answer(status, body)
	case strings.HasSuffix(path, "/orders"):
		rows := s.rows
		if s.export != nil {
			rows = s.export(rows)
		}
		fmt.Fprintln(w, "status,id,user_id,price")
		for _, o := range rows {
			fmt.Fprintf(w, "%s,%s,%s,%d\n", o.Status, o.ID, o.UserID, o.Price)
		}
	case strings.Contains(path, "/orders/"):
		status, body := s.look(path)
		answer(status, body)
	case strings.HasSuffix(path, "/audit"):
		n := int64(len(s.rows))
		a := model.Audit{Balanced: true, Database: model.AuditDatabase{
			Stock: s.stock, Remaining: s.stock - n,
			LiveOrders: n,
		}}
		if s.audit != nil {
			s.audit(&a)
		}
		answer(http.StatusOK, a)
	default:
		answer(http.StatusCreated, model.Voucher{ID: "v"})
	}
}

func authorityOfShop() *token.Authority {
	authority, err := token.New([]token.Key{{ID: "1", Secret: strings.Repeat("x", 32)}}, "seckill", "seckill")
	if err != nil {
		panic(err)
	}
	return authority
}

// The demo is only worth something if it notices what is wrong.
func TestDemoNotices(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		shop *shop
		want string // in the error; empty: the sale is fine
	}{
		"an honest shop": {&shop{}, ""},
		"sold too many":  {&shop{press: func(s *shop, user string) (int, any) { return s.force(user) }}, "20 buyers won and 5 should have"},
		"units unsold": {&shop{press: func(s *shop, user string) (int, any) {
			if len(s.rows) == 4 {
				return http.StatusConflict, api.Problem{Code: "SOLD_OUT"}
			}
			return s.sell(user)
		}}, "4 buyers won and 5 should have"},
		"two for one": {&shop{export: func(rows []model.Order) []model.Order {
			rows[1].UserID = rows[0].UserID
			return rows
		}}, "has two orders"},
		"a promise without a row": {&shop{export: func(rows []model.Order) []model.Order { return rows[1:] }}, "which does not exist"},
		"one order for all": {&shop{press: func(s *shop, user string) (int, any) {
			status, body := s.sell(user)
			if order, ok := body.(model.Order); ok {
				order.ID = s.rows[0].ID
				return status, order
			}
			return status, body
		}}, "were told of the same order"},
		"an unexpected code": {&shop{press: func(s *shop, user string) (int, any) {
			if s.presses == 20 {
				return http.StatusInternalServerError, api.Problem{Code: "INTERNAL"}
			}
			return s.sell(user)
		}}, "500 INTERNAL"},
		"ordered already without a first call": {&shop{press: func(s *shop, user string) (int, any) {
			if s.presses == 20 {
				return http.StatusConflict, api.Problem{Code: "ALREADY_ORDERED"}
			}
			return s.sell(user)
		}}, "409 ALREADY_ORDERED"},
		"an audit that does not balance": {&shop{audit: func(a *model.Audit) { a.Balanced = false }}, "does not balance"},
		"a unit too many left":           {&shop{audit: func(a *model.Audit) { a.Database.Remaining++ }}, "1 units remain and 0 should"},
		"busy at first": {&shop{press: func(s *shop, user string) (int, any) {
			if s.presses <= 20 {
				return []int{429, 503}[s.presses%2], api.Problem{Code: "LOCK_BUSY"}
			}
			return s.sell(user)
		}}, ""},
		"promises that are kept": {&shop{keep: func(order model.Order) model.Order { return order }}, ""},
		"promises that are broken": {&shop{keep: func(order model.Order) model.Order {
			order.Status = model.OrderFailed
			return order
		}}, "not unpaid"},
		"an answer was lost": {&shop{press: func(s *shop, user string) (int, any) {
			if s.presses == 1 {
				_, _ = s.sell(user)
				return http.StatusServiceUnavailable, api.Problem{Code: "UNAVAILABLE"}
			}
			if len(s.rows) > 0 && s.rows[0].UserID == user {
				return http.StatusConflict, api.Problem{Code: "ALREADY_ORDERED"}
			}
			return s.sell(user)
		}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.shop.stock = 5
			backend := httptest.NewServer(test.shop)
			t.Cleanup(backend.Close)
			var out bytes.Buffer
			s := Sale{
				Buyers: 20, Stock: 5, Base: backend.URL, Tokens: authorityOfShop(), HTTP: backend.Client(),
				Out: &out, voucher: "v",
			}
			admin := check.Value(s.client("admin", model.RoleAdmin))(t)
			err := s.sell(t.Context(), admin)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("the demo says %v, want %q\n%s", err, test.want, out.String())
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		check.Equal(t, fmt.Sprint("quantile ", share), quantile(hundred, share), want)
	}
	check.Equal(t, "a quantile of one", quantile(hundred[:1], 0.99), 1)
}

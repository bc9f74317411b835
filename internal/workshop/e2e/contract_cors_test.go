package e2e_test

import (
	"net/http"
	"slices"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// A page of an origin that the setting names buys as a browser does it: it asks first,
// then it reads the answer. Without the setting no page does.
func TestPagesBuy(t *testing.T) {
	t.Parallel()
	anywhere(t, func(t *testing.T, a shop) {
		t.Helper()
		path := "/vouchers/" + a.onSale(t, 1).ID + "/seckill"
		allowed := func(got api.Answer, origin string) bool {
			t.Helper()
			header := got.Header.Get("Access-Control-Allow-Origin")
			if header != "" && header != origin {
				t.Errorf("%d allows %q", got.Status, header)
			}
			return header == origin
		}
		for _, origin := range append(origins(), "https://evil.example") {
			want := !a.embedded && slices.Contains(origins(), origin)
			asked := a.Call(t, http.MethodOptions, path, "", nil,
				"Origin: "+origin, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization")
			if allowed(asked, origin) != want || want && asked.Header.Get("Access-Control-Allow-Headers") != "authorization" {
				t.Errorf("%s asks: %d %v", origin, asked.Status, asked.Header)
			}
			bought := a.Call(t, http.MethodPost, path, a.Token(t, a.user(1), model.RoleUser), nil, "Origin: "+origin)
			if !bought.Sells() && !remote.Again(bought, nil) && bought.Code() != model.CodeAlreadyOrdered || allowed(bought, origin) != want {
				t.Errorf("%s buys: %d %v", origin, bought.Status, bought.Header)
			}
		}
	})
}

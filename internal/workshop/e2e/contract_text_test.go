package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/api"
	"seckill/internal/workshop/check"
	"seckill/internal/workshop/remote"
	"seckill/model"
)

// What a voucher is called can be read as it is: nothing in it is hidden, and it turns
// nothing around. What people write in any language comes back as they wrote it.
func TestTextsOfVouchers(t *testing.T) {
	t.Parallel()
	anywhere(t, checkTexts)
}

func checkTexts(t *testing.T, a shop) {
	t.Helper()
	voucher := a.onSale(t, 1)
	path, admin := "/admin/vouchers/"+voucher.ID, a.Admin(t)
	for _, title := range []string{
		"Coffee \u202eeerf rof", "Cof\u200bfee", "\ufeffCoffee", "Coffee\u2028free", "Cof\u00adfee", " \u00a0\u3000", "\u3164", "a\nb", "a\tb",
		"Coffee\U000e0041\U000e0042",
	} {
		for _, got := range []api.Answer{
			a.Call(t, http.MethodPatch, path, admin, map[string]any{"title": title}),
			a.Call(t, http.MethodPost, "/admin/vouchers", admin, map[string]any{
				"title": title, "price": 1, "face_value": 1, "stock": 1, "begin_at": voucher.BeginAt, "end_at": voucher.EndAt,
			}),
		} {
			refused(t, got, http.StatusUnprocessableEntity, model.CodeValidation)
			if p := remote.Decode[api.Problem](t, got); len(p.Errors) != 1 || p.Errors[0].Location != "body.title" {
				t.Errorf("%q: %s", title, got.Body)
			}
		}
	}
	refused(t, a.Call(t, http.MethodPatch, path, admin, map[string]any{"description": "two\n\tlines \u2066x\u2069"}),
		http.StatusUnprocessableEntity, model.CodeValidation)
	for _, text := range []string{"双人咖啡券", "می\u200cخواهم PDF\u200cها", "👩🏽\u200d🚀 ❤\ufe0f\u200d🔥", "קפה לשניים"} {
		got := a.Call(t, http.MethodPatch, path, admin, map[string]any{"title": text, "description": text + "\n\t" + text})
		if v := remote.Decode[model.Voucher](t, got); got.Status != http.StatusOK || v.Title != text || v.Description != text+"\n\t"+text {
			t.Errorf("%q: %d %s", text, got.Status, got.Body)
		}
	}
}

// A page that makes a browser ask the operations listener under a name of its own (DNS
// rebinding) hears nothing; a monitoring system of the inner network does.
func TestOperationsHearNoStrangersNames(t *testing.T) {
	t.Parallel()
	within(t, "sync embedded", checkOperationsHearNoStrangersNames)
}

func checkOperationsHearNoStrangersNames(t *testing.T, a shop) {
	t.Helper()
	for host, want := range map[string]int{
		"": http.StatusOK, "localhost:8081": http.StatusOK, "seckill-1:8081": http.StatusOK, "seckill.shop.svc.cluster.local": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest, "127.0.0.1.evil.example:8081": http.StatusMisdirectedRequest,
	} {
		for _, path := range []string{"/metrics", "/debug/pprof/cmdline"} {
			request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, a.ops+path, nil))(t)
			if host != "" {
				request.Host = host
			}
			answer, err := a.Client.Do(request)
			check.Must(t, err)
			_ = answer.Body.Close()
			check.Equal(t, path+" as "+host, answer.StatusCode, want)
		}
	}
}

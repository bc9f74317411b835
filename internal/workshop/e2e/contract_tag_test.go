package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/api"
	"seckill/model"
)

// TestTwoAdministrators never overwrite each other unseen, in both order modes.
func TestTwoAdministrators(t *testing.T) {
	t.Parallel()
	everywhere(t, checkTwoAdministrators)
}

func checkTwoAdministrators(t *testing.T, a shop) {
	t.Helper()
	v := a.onSale(t, 10)
	path := "/admin/vouchers/" + v.ID
	change := func(method, path, seen, body string) api.Answer {
		return a.Call(t, method, path, a.Admin(t), body, "If-Match: "+seen)
	}
	read := func() string {
		t.Helper()
		tag := a.Call(t, http.MethodGet, path, a.Admin(t), nil).Header.Get("ETag")
		if tag == "" {
			t.Fatal("a voucher without an ETag")
		}
		return tag
	}
	mine, theirs := read(), read()
	// A sale is no administrator's change.
	a.buys(t, v.ID, a.user(1))
	done := change(http.MethodPatch, path, mine, `{"price":1500}`)
	if v := object(t, done, http.StatusOK); v["price"] != 1500.0 || done.Header.Get("ETag") != read() || read() == mine {
		t.Errorf("%v, ETag %s, read %s", v, done.Header.Get("ETag"), read())
	}
	refused(t, change(http.MethodPatch, path, theirs, `{"price":900}`), http.StatusPreconditionFailed, model.CodePreconditionFailed)
	refused(t, change(http.MethodPost, path+"/stock", theirs, `{"stock":5}`), http.StatusPreconditionFailed, model.CodePreconditionFailed)
	if now := object(t, a.Call(t, http.MethodGet, path, a.Admin(t), nil), http.StatusOK); now["price"] != 1500.0 || now["stock"] != 10.0 {
		t.Errorf("a refused change left %v", now)
	}
	// Read again, it is made; each change hands its sender the next tag.
	seen := read()
	for _, body := range []string{`{"stock":12}`, `{"stock":5}`, `{"delta":1}`} {
		done := change(http.MethodPost, path+"/stock", seen, body)
		object(t, done, http.StatusOK)
		refused(t, change(http.MethodPost, path+"/stock", seen, `{"delta":1}`), http.StatusPreconditionFailed, model.CodePreconditionFailed)
		seen = done.Header.Get("ETag")
	}
	if now := object(t, change(http.MethodPatch, path, seen, `{"title":"Tea"}`), http.StatusOK); now["stock"] != 6.0 || now["title"] != "Tea" {
		t.Errorf("%v", now)
	}
	// Without If-Match as ever.
	object(t, a.Call(t, http.MethodPatch, path, a.Admin(t), `{"price":1}`), http.StatusOK)
	if got := change(http.MethodPatch, "/admin/vouchers/none", `"x"`, "{}"); got.Status != http.StatusNotFound {
		t.Errorf("%d", got.Status)
	}
}

package token

import (
	"net/http"
	"testing"

	"seckill/internal/workshop/check"
)

// TestRedirectsLowerNoGuard: keys that were read by https must not come from where
// any program of the machine can serve them.
func TestRedirectsLowerNoGuard(t *testing.T) {
	t.Parallel()
	request := func(url string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		check.Must(t, err)
		return r
	}
	for _, test := range []struct {
		from, to string
		allowed  bool
	}{
		{"https://a.example/", "https://b.example/", true},
		{"http://127.0.0.1/", "https://b.example/", true},
		{"http://127.0.0.1/", "http://localhost:8080/", true},
		{"http://127.0.0.1/", "http://b.example/", false},
		{"http://127.0.0.1/", "file:///etc/passwd", false},
		{"https://a.example/", "http://b.example/", false},
		{"https://a.example/", "http://127.0.0.1/", false},
	} {
		err := checkRedirect(request(test.to), []*http.Request{request(test.from)})
		if (err == nil) != test.allowed {
			t.Errorf("from %s to %s: %v", test.from, test.to, err)
		}
	}
}

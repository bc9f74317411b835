package token

import (
	"net/http"
	"reflect"
	"testing"

	"seckill/internal/workshop/check"
)

func usualTexts() map[string]bool {
	return map[string]bool{ // whether they are usual
		`{"sub":"1","role":"user","iss":"seckill","aud":"seckill","exp":1893459600}`:                                              true,
		`{"sub":"user-1","role":"admin","preferred_username":"ann","ver":12,"iss":"s","aud":["seckill"],"iat":1,"nbf":2,"exp":3}`: true,
		`{"role":"admin","level":"viewer"}`:     true,
		`{"role":"admin","level":""}`:           true,
		`{"level":7}`:                           false,
		`{"aud":"x"}`:                           true,
		`{"exp":0}`:                             true,
		`{}`:                                    false,
		``:                                      false,
		`{"sub":"1",}`:                          false,
		`{"sub":"1"}}`:                          false,
		`{"sub":"1"} `:                          false,
		`{ "sub":"1"}`:                          false,
		`{"sub":"1"`:                            false,
		`{"sub":"1`:                             false,
		`{"sub":"1","sub":"1"}`:                 false,
		`{"sub":"1","Sub":"2"}`:                 false,
		`{"sub":"1","jti":"2"}`:                 false,
		`{"sub":"\u0031"}`:                      false,
		`{"sub":"ü"}`:                           false,
		"{\"sub\":\"\x00\"}":                    false,
		"{\"sub\":\"\xff\"}":                    false,
		`{"sub":1}`:                             false,
		`{"sub":null}`:                          false,
		`{"aud":["a","b"]}`:                     false,
		`{"aud":["a"}`:                          false,
		`{"aud":[]}`:                            false,
		`{"exp":-1}`:                            false,
		`{"exp":1.5}`:                           false,
		`{"exp":1e3}`:                           false,
		`{"exp":01}`:                            false,
		`{"exp":}`:                              false,
		`{"exp":123456789012345}`:               false,
		`{"exp":99999999999999999999}`:          false,
		`{"ver":"2.0"}`:                         false,
		`{"iat":"x"}`:                           false,
		`{"sub":"1","role":"user"}{"sub":"2"}`:  false,
		`["sub"]`:                               false,
		`{"sub":{"a":"b"},"role":"user","x":1}`: false,
	}
}

func TestUsualClaims(t *testing.T) {
	t.Parallel()
	for text, want := range usualTexts() {
		_, usual := readUsual(text)
		check.That(t, usual == want, "%s: usual is %v, want %v", text, usual, want)
		checkUsual(t, text)
	}
}

// FuzzUsualClaims: whatever is read the quick way, the library reads as well, and it says the same.
//
//	go test -run '^$' -fuzz FuzzUsualClaims ./internal/token
func FuzzUsualClaims(f *testing.F) {
	for text := range usualTexts() {
		f.Add(text)
	}
	f.Fuzz(checkUsual)
}

func checkUsual(t *testing.T, text string) {
	t.Helper()
	got, usual := readUsual(text)
	if !usual {
		return
	}
	said, err := readStatement([]byte(text))
	want := said.payload()
	want.said = nil
	check.That(t, err == nil && reflect.DeepEqual(got, want),
		"%s is read as %+v; the library reads %+v, %v", text, got, want, err)
}

// TestRedirectsLowerNoGuard: keys read by https must not come from where any program of the machine can serve them.
func TestRedirectsLowerNoGuard(t *testing.T) {
	t.Parallel()
	request := func(url string) *http.Request {
		r := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
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
		check.That(t, (err == nil) == test.allowed, "from %s to %s: %v", test.from, test.to, err)
	}
}

package e2e_test

import (
	"net/http"
	"testing"

	"seckill/internal/workshop/check"
)

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

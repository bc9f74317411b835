package listener

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync/atomic"
	"testing"

	"seckill/internal/workshop/check"
)

// leavingServer answers at once, those of /wait when it is told to, and may begin to leave.
type leavingServer struct {
	*httptest.Server

	leaving         atomic.Bool
	waits, released chan struct{}
}

func newLeavingServer(t *testing.T, protocol string) *leavingServer {
	t.Helper()
	s := &leavingServer{waits: make(chan struct{}), released: make(chan struct{})}
	handler := closing(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(s.waits)
			<-s.released
		}
		_, _ = io.WriteString(w, "served")
	}), s.leaving.Load)
	s.Server = httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = protocol == "HTTP/2.0"
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// ask makes a request, and tells whether its connection had served another one before, and serves no other.
func (s *leavingServer) ask(t *testing.T, path, protocol string) (reused, closes bool) {
	t.Helper()
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
	request := check.Value(http.NewRequestWithContext(httptrace.WithClientTrace(check.Context(t), trace), http.MethodGet, s.URL+path, nil))(t)
	answer, err := s.Client().Do(request)
	check.Must(t, err)
	defer answer.Body.Close()
	check.Equal(t, path, string(check.Value(io.ReadAll(answer.Body))(t)), "served")
	check.Equal(t, "the protocol", answer.Proto, protocol)
	return reused, answer.Close
}

// From the moment on in which an instance leaves, no answer leaves its connection for another request, also not one
// that was under way; a connection that waits has one more answer.
func TestAnswersOfALeavingInstanceCloseTheirConnections(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := newLeavingServer(t, protocol)
			s.ask(t, "/", protocol)
			reused, closes := s.ask(t, "/", protocol)
			check.Equal(t, "connections stay open before", reused && !closes, true)
			slow := make(chan bool)
			go func() {
				_, closes := s.ask(t, "/wait", protocol)
				slow <- closes
			}()
			check.Receive(t, "a slow request", s.waits)
			if protocol == "HTTP/1.1" {
				s.ask(t, "/", protocol) // now there is one that waits
			}
			s.leaving.Store(true)
			reused, closes = s.ask(t, "/", protocol)
			check.Equal(t, "the waiting connection has one more answer", reused, true)
			check.Equal(t, "which closes it", closes, protocol == "HTTP/1.1")
			reused, _ = s.ask(t, "/", protocol)
			check.Equal(t, "the next one has a connection that is not new", reused, false)
			close(s.released)
			check.Equal(t, "the slow answer closes its connection", check.Receive(t, "the slow answer", slow), protocol == "HTTP/1.1")
		})
	}
}

package conns_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"seckill/internal/conns"
	"seckill/internal/workshop/check"
)

// net/http waits half a second before it closes the connection of a request that it could not read.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// server answers every request, once released those of /wait.
type server struct {
	t        *testing.T
	guard    *conns.Guard
	registry *prometheus.Registry
	log      *check.Log
	address  string
	release  chan struct{}
	longest  time.Duration // that an answer may take
	waits    atomic.Int64
	canceled atomic.Int64
}

// serve starts a server; wrap may put something before its listener.
func serve(t *testing.T, o conns.Options, wrap func(net.Listener) net.Listener) *server {
	t.Helper()
	return serveWithin(t, o, wrap, check.Deadline)
}

func serveWithin(t *testing.T, o conns.Options, wrap func(net.Listener) net.Listener, longest time.Duration) *server {
	t.Helper()
	s := &server{
		t: t, registry: prometheus.NewRegistry(), log: &check.Log{}, release: make(chan struct{}),
		longest: longest,
	}
	o.Name, o.Metrics, o.Log = "test", s.registry, s.log.Logger()
	s.guard = conns.New(o)
	s.guard.Hasty()
	listener := check.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	s.address = listener.Addr().String()
	if wrap != nil {
		listener = wrap(listener)
	}
	h := &http.Server{
		Handler: http.HandlerFunc(s.handle), ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute,
		WriteTimeout: s.longest, MaxHeaderBytes: 16 << 10,
	}
	watched := s.guard.Watch(h, listener)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Serve(watched)
	}()
	t.Cleanup(func() {
		_ = h.Close()
		<-done
		check.Eventually(t, "no connection is counted after the stop", func() bool { return s.guard.Open() == 0 })
	})
	return s
}

func (s *server) handle(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/wait" {
		s.waits.Add(1)
		select {
		case <-s.release:
		case <-r.Context().Done():
			s.canceled.Add(1)
			<-s.release
		}
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if conns.Crowded(r.Context()) {
		w.Header().Set("Connection", "close")
	}
	_, _ = io.WriteString(w, "ok")
}

// dial opens a connection that says nothing.
func (s *server) dial() net.Conn {
	s.t.Helper()
	c := check.Value((&net.Dialer{}).DialContext(s.t.Context(), "tcp", s.address))(s.t)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *server) ask(path string) net.Conn {
	s.t.Helper()
	c := s.dial()
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	check.Must(s.t, err)
	return c
}

// status reads the status of an answer; 0 when the connection was closed without one.
func (s *server) status(c net.Conn) (status int) {
	s.t.Helper()
	check.Must(s.t, c.SetReadDeadline(time.Now().Add(check.Deadline)))
	if _, err := fmt.Fscanf(c, "HTTP/1.1 %d", &status); err != nil {
		return 0
	}
	return status
}

// count is the value of a metric, of one reason where there are several.
func (s *server) count(name, reason string) (sum float64) {
	s.t.Helper()
	for _, family := range check.Value(s.registry.Gather())(s.t) {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetValue() == reason || label.GetName() == "listener" && reason == "" {
					sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// Silent connections make room, the one that waited longest first, and a client that says something is served.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	s := serve(t, conns.Options{Max: 100, PerNetwork: 1000}, nil)
	first := s.ask("/")
	check.Equal(t, "the answer of an idle server", s.status(first), http.StatusOK)
	for range 300 {
		s.dial()
	}
	for range 10 {
		check.Equal(t, "the answer among silent connections", s.status(s.ask("/")), http.StatusOK)
	}
	if n := s.guard.Open(); n > 100 {
		t.Errorf("%d connections are open with a bound of 100", n)
	}
	if n := s.count("seckill_connections_closed_total", "room"); n < 200 {
		t.Errorf("%v connections made room", n)
	}
	check.Is(t, "its health", s.guard.Probe(t.Context()), nil)
	if !s.log.Has("connections that waited were closed") {
		t.Errorf("the log says %s", s.log.String())
	}
}

// No other connection closes a busy one: those beyond the bound wait, and after a while the instance is not ready.
func TestBusyConnectionsStay(t *testing.T) {
	t.Parallel()
	s := serve(t, conns.Options{Max: 5, PerNetwork: 1000}, nil)
	var busy []net.Conn
	for range 5 {
		busy = append(busy, s.ask("/wait"))
	}
	check.Eventually(t, "five requests are under way", func() bool { return s.waits.Load() == 5 })
	busy = append(busy, s.ask("/wait"))
	check.Eventually(t, "one waits for a place", func() bool { return s.log.Has("connections wait for others to end") })
	s.guard.Pass(-time.Hour)
	check.Is(t, "its health for a while", s.guard.Probe(t.Context()), nil)
	s.guard.Pass(time.Hour + 5*time.Second)
	check.That(t, s.guard.Probe(t.Context()) != nil, "after a while it is ready")
	close(s.release)
	for _, c := range busy {
		check.Equal(t, "the answer to a request under way", s.status(c), http.StatusOK)
	}
	check.Eventually(t, "it is ready again",
		func() bool { return s.guard.Probe(t.Context()) == nil && s.status(s.ask("/")) == http.StatusOK })
}

// One address has a part of the connections; a trusted proxy may have all. A client that half-closes behind its request
// gets its answer. One that hung up looks the same: its request ends when no answer can come, half a one at once.
func TestHalfClosedConnectionsAreServed(t *testing.T) {
	t.Parallel()
	halved := func(s *server, text string) net.Conn {
		c := s.dial()
		check.Must(t, check.ErrorOf(io.WriteString(c, text)))
		tcp, _ := c.(*net.TCPConn)
		check.Must(t, tcp.CloseWrite())
		return c
	}
	const slow = "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"
	s := serve(t, conns.Options{Max: 10}, nil)
	c := halved(s, slow)
	check.Eventually(t, "its request is under way", func() bool { return s.waits.Load() == 1 })
	check.Stays(t, "its request is not canceled", func() bool { return s.canceled.Load() == 0 })
	check.Equal(t, "half a request", s.status(halved(s, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx")),
		http.StatusOK)
	close(s.release)
	check.Equal(t, "the answer", s.status(c), http.StatusOK)
	check.Eventually(t, "both connections end with it", func() bool { return s.guard.Open() == 0 })

	hasty := serveWithin(t, conns.Options{Max: 10}, nil, check.Soon)
	halved(hasty, slow)
	check.Eventually(t, "when no answer can come it is canceled", func() bool { return hasty.canceled.Load() == 1 })
	close(hasty.release)
}

func TestOneAddressHasAPart(t *testing.T) {
	t.Parallel()
	s := serve(t, conns.Options{Max: 100, PerNetwork: 4}, nil)
	for range 20 {
		s.dial()
	}
	for range 4 {
		s.ask("/wait")
	}
	check.Eventually(t, "four requests are under way", func() bool { return s.waits.Load() == 4 })
	fifth := s.ask("/")
	check.Eventually(t, "a fifth of one address waits",
		func() bool { return s.log.Has("connections wait for others to end") })
	check.Equal(t, "open connections", s.count("seckill_connections_open", ""), 4)
	other := check.Value((&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", s.address))(t)
	check.Value(io.WriteString(other, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"))(t)
	check.Equal(t, "another address is answered before it", s.status(other), http.StatusOK)
	check.That(t, s.waits.Load() == 4, "%d wait", s.waits.Load())
	close(s.release)
	check.Equal(t, "its answer", s.status(fifth), http.StatusOK)

	proxy := serve(t, conns.Options{
		Max: 100, PerNetwork: 4,
		Exempt: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}, nil)
	for range 50 {
		proxy.dial()
	}
	check.Eventually(t, "a proxy has fifty connections", func() bool { return proxy.guard.Open() == 50 })
}

// Everybody of a crowd that is larger than the bound is served.
func TestNobodyIsSentAwayWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, conns.Options{Max: 4, PerNetwork: 2}, nil)
	s.guard.Patient()
	check.Volley(200, func(int) { check.Equal(t, "the answer", s.status(s.ask("/")), http.StatusOK) })
	check.Equal(t, "closed connections", s.count("seckill_connections_closed_total", "room"), 0)
}

// exhausted is a listener of a process without descriptors, for some time.
type exhausted struct {
	net.Listener

	fails atomic.Int64
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// An accept that fails is counted, logged and shown, and the server goes on.
func TestAcceptErrors(t *testing.T) {
	t.Parallel()
	s := serve(t, conns.Options{Max: 10}, func(l net.Listener) net.Listener {
		e := &exhausted{Listener: l}
		e.fails.Store(3)
		return e
	})
	check.Equal(t, "the answer after three failures", s.status(s.ask("/")), http.StatusOK)
	check.Equal(t, "counted failures", s.count("seckill_connections_accept_errors_total", ""), 3)
	if !s.log.Has("connections cannot be accepted", "level=WARN", syscall.EMFILE.Error()) {
		t.Errorf("the log says %s", s.log.String())
	}
	s.guard.Pass(-time.Hour)
	check.That(t, s.guard.Probe(t.Context()) != nil, "it is ready a moment after it could not accept")
	s.guard.Pass(time.Hour + 5*time.Second)
	check.Is(t, "its health after a while", s.guard.Probe(t.Context()), nil)
}

func TestBoundFitsTheProcess(t *testing.T) {
	t.Parallel()
	var limit syscall.Rlimit
	check.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	s := serve(t, conns.Options{}, nil)
	if n := s.count("seckill_connections_max", ""); n < 1 || n > float64(limit.Cur)*.9 && n != 10_000 {
		t.Errorf("%v connections with %d descriptors", n, limit.Cur)
	}
}

// What net/http refuses without a handler is a problem document; a header of 16 KiB is no such thing.
func TestUnreadableRequestsHearProblems(t *testing.T) {
	t.Parallel()
	s := serve(t, conns.Options{Max: 100}, nil)
	ask := func(header string) *http.Response {
		c := s.dial()
		check.Must(t, check.ErrorOf(io.WriteString(c, "GET / HTTP/1.1\r\n"+header+"\r\n\r\n")))
		check.Must(t, c.SetReadDeadline(time.Now().Add(check.Deadline)))
		return check.Value(http.ReadResponse(bufio.NewReader(c), nil))(t)
	}
	for header, want := range map[string]int{
		"Host: x\r\nAuthorization: " + strings.Repeat("x", 16<<10-100): http.StatusOK,
		"Host: x\r\nAuthorization: " + strings.Repeat("x", 32<<10):     http.StatusRequestHeaderFieldsTooLarge,
		"Accept: */*":           http.StatusBadRequest, // it lacks the Host
		"Host: x\r\n: nameless": http.StatusBadRequest,
	} {
		got := ask(header)
		var problem struct{ Status int }
		if got.StatusCode != want || want != http.StatusOK &&
			(got.Header.Get("Content-Type") != "application/problem+json" ||
				json.NewDecoder(got.Body).Decode(&problem) != nil || problem.Status != want ||
				got.Header.Get("X-Request-Id") == "") {
			t.Errorf("%.20q: %d %v, want %d", header, got.StatusCode, got.Header, want)
		}
		check.Must(t, got.Body.Close())
	}
}

// Whoever waits on a connection of a set learns of its end at once; a connection closed earlier is not in the set.
func TestSet(t *testing.T) {
	t.Parallel()
	var set conns.Set
	near, far := net.Pipe()
	kept := set.Keep(near)
	gone, _ := net.Pipe()
	check.Must(t, set.Keep(gone).Close())
	ended := make(chan error, 1)
	go func() { ended <- check.ErrorOf(kept.Read(make([]byte, 1))) }()
	set.Cut()
	check.Is(t, "who waited", check.Receive(t, "the end", ended), io.ErrClosedPipe)
	check.Is(t, "the other side", check.ErrorOf(far.Read(make([]byte, 1))), io.EOF)
	check.Must(t, kept.Close())
	set.Cut()
}

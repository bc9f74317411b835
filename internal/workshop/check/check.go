// Package check holds what tests say in the same words: assertions, waiting, the start gun, a log, how large a test is.
//
// No verdict depends on how busy the machine is: a test waits for the event itself, and Deadline, the only limit of
// time, says that it never came. A test about time runs in virtual time (testing/synctest).
package check

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Must fails the test at once when there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Value is a call's result, or the end of the test that takes it: order := check.Value(orders.Get(ctx, id))(t).
func Value[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Must(t, err)
		return value
	}
}

// ErrorOf is the error of a call whose value does not matter.
func ErrorOf[T any](_ T, err error) error { return err }

// Equal checks that something is what it has to be.
func Equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Is checks that an error is the wanted one, or wraps it. A wanted error of nil means that there is none.
func Is(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// Volley runs n calls at the same instant, and returns when all are done.
func Volley(n int, call func(i int)) {
	gun := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-gun
			call(i)
		})
	}
	close(gun)
	wg.Wait()
}

// That checks that something holds, and tells otherwise what was found instead.
func That(t testing.TB, holds bool, format string, found ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, found...)
	}
}

// Need is That for what the rest of the test rests on: it ends the test.
func Need(t testing.TB, holds bool, format string, found ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, found...)
	}
}

// How long tests wait.
const (
	Deadline = 2 * time.Minute       // for an event; it judges no speed: all takes far less, raced on two busy cores
	Soon     = 50 * time.Millisecond // for an event that cannot happen; a slow machine only makes it later

	pause = 5 * time.Millisecond // between two looks: short against all that takes time, long against a busy loop
)

// Context ends when the test does, or at the common deadline.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	t.Cleanup(cancel)
	return ctx
}

// Expiring is a context that runs out soon, for a call that cannot succeed before.
func Expiring(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Soon)
	t.Cleanup(cancel)
	return ctx
}

// Eventually waits until something holds that comes to hold by itself, and fails the test at once when it never does.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	await(t, what, pause, holds)
}

// Patiently is Eventually for a look that costs something, as a request does: it looks more and more rarely.
func Patiently(t testing.TB, what string, holds func() bool) {
	t.Helper()
	await(t, what, 32*pause, holds)
}

func await(t testing.TB, what string, rarest time.Duration, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(Deadline)
	defer deadline.Stop()
	for rest := pause; !holds(); rest = min(2*rest, rarest) {
		select {
		case <-deadline.C:
			t.Fatalf("it never happened: %s", what)
		case <-time.After(rest):
		}
	}
}

// Receive is a channel's next value, or the zero value of a closed one. It fails the test when nothing comes.
func Receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	deadline := time.NewTimer(Deadline)
	defer deadline.Stop()
	select {
	case value := <-from:
		return value
	case <-deadline.C:
		t.Fatalf("it never came: %s", what)
		panic("not reached")
	}
}

// Stays checks that something goes on to hold for a short while. A slow machine may hide a change, never fail it.
func Stays(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.After(Soon); ; {
		Need(t, holds(), "it did not stay so: %s", what)
		select {
		case <-end:
			return
		case <-time.After(pause):
		}
	}
}

// Count is how much a test does: little in `make test`, more in `make faults`, or as the environment says.
func Count(t testing.TB, variable string, short, long int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		if Faults {
			return long
		}
		return short
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s is no positive number", variable, text)
	}
	return n
}

// Seeded is the chance of a test. The variable SEED repeats it; a test that fails says which one it had.
func Seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := Count(t, "SEED", int(rand.Int32())+1, int(rand.Int32())+1)
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewPCG(uint64(seed), uint64(seed)))
}

// Log keeps what is written to it, by any goroutine, for tests that look into it.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is everything that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Has tells whether one line has all the parts.
func (l *Log) Has(parts ...string) bool {
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return true
		}
	}
	return false
}

// Logger writes lines of text of every level.
func (l *Log) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Network is a listener inside the process, without time outside: for bubbles (testing/synctest).
type Network struct {
	dialed chan net.Conn
	closed chan struct{}
	close  func()
}

// NewNetwork makes one.
func NewNetwork() *Network {
	n := &Network{dialed: make(chan net.Conn), closed: make(chan struct{})}
	n.close = sync.OnceFunc(func() { close(n.closed) })
	return n
}

// Accept implements net.Listener.
func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.dialed:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *Network) Close() error {
	n.close()
	return nil
}

// Addr implements net.Listener.
func (*Network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// Dial connects to the listener, whatever the address (http.Transport.DialContext).
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case n.dialed <- near{server}:
		return client, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type near struct{ net.Conn }

func (near) RemoteAddr() net.Addr { return (*Network)(nil).Addr() }

// Wrong is a way in which a server misbehaves: it answers a request in the server's place, or has the server do it.
type Wrong func(w http.ResponseWriter, r *http.Request, server http.Handler)

// Front stands before a server and misbehaves when it is told to, also while it serves.
type Front struct {
	Server http.Handler
	wrong  atomic.Pointer[Wrong]
}

// Set has every later request go wrong; nil is none.
func (f *Front) Set(wrong Wrong) { f.wrong.Store(&wrong) }

func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if wrong := f.wrong.Load(); wrong != nil && *wrong != nil {
		(*wrong)(w, r, f.Server)
		return
	}
	f.Server.ServeHTTP(w, r)
}

// WrongAnswers are ways in which a provider misbehaves, by their names.
func WrongAnswers() map[string]Wrong {
	says := func(status int, body string) Wrong {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { http.Error(w, body, status) }
	}
	return map[string]Wrong{
		"down": func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) },
		"lost": func(_ http.ResponseWriter, r *http.Request, server http.Handler) { // the call is done
			server.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		},
		"slow": func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the caller is gone
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		},
		"failing":  says(http.StatusInternalServerError, "out of order"),
		"nonsense": says(http.StatusOK, "<html>Welcome!</html>"),
		// A proxy that knows no such path answers so.
		"foreign": says(http.StatusNotFound, "<html>There is nothing here.</html>"),
		"busy":    says(http.StatusConflict, `{"error":"a call with this key is under way"}`),
	}
}

// Running runs works until the test ends, or until stop is called; either waits for their end.
func Running(t testing.TB, works ...func(ctx context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, work := range works {
		all.Go(func() { work(ctx) })
	}
	stop = func() { cancel(); all.Wait() }
	t.Cleanup(stop)
	return stop
}

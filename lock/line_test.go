package lock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"seckill/internal/testserver"
)

// line is a connection to a server that can be made to fail.
type line struct {
	t      testing.TB
	proxy  *toxiproxy.Proxy
	toxics []string
}

func through(t testing.TB, addr string) *line {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", addr)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &line{t: t, proxy: p}
}

func (l *line) url() string { return "redis://" + l.proxy.Listen + "/0" }

func (l *line) toxic(kind, stream, attributes string) {
	l.t.Helper()
	name := fmt.Sprintf("%s %d", kind, len(l.toxics))
	l.toxics = append(l.toxics, name)
	_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
		`{"name": %q, "type": %q, "stream": %q, "attributes": {%s}}`, name, kind, stream, attributes)))
	if err != nil {
		l.t.Fatal(err)
	}
}

// cutReplies lets requests through and breaks the connection at the reply.
func (l *line) cutReplies() { l.t.Helper(); l.toxic("limit_data", "downstream", `"bytes": 0`) }

// swallowReplies lets requests through and lets the caller wait for ever.
func (l *line) swallowReplies() { l.t.Helper(); l.toxic("timeout", "downstream", `"timeout": 0`) }

// hole swallows everything, both ways, without a word.
func (l *line) hole() {
	l.t.Helper()
	l.toxic("timeout", "upstream", `"timeout": 0`)
	l.swallowReplies()
}

func (l *line) slow(d time.Duration) {
	l.t.Helper()
	l.toxic("latency", "downstream", fmt.Sprintf(`"latency": %d`, d.Milliseconds()))
}

func (l *line) heal() {
	l.t.Helper()
	for _, name := range l.toxics {
		if err := l.proxy.Toxics.RemoveToxic(context.Background(), name); err != nil {
			l.t.Error(err)
		}
	}
	l.toxics = nil
}

// plain is a client with go-redis' own defaults: it repeats commands and does
// not mind the deadlines of contexts.
func plain(t testing.TB, url string) *redis.Client {
	t.Helper()
	opt, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// warm leaves a client with several connections that work. The latch of an unlock
// is deleted a moment after it: on a busy machine that is when the line is slow
// or silent already, and it would take the only connection. Those that a toxic
// had silenced are closed by heal, which the client learns when it uses them.
func warm(t testing.TB, client *redis.Client) {
	t.Helper()
	const atOnce = 4 // more than anything of a test needs
	for range atOnce {
		c := client.Conn()
		defer c.Close()
		if err := c.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// bench is one Redis: looked at directly, used through a line.
type bench struct {
	server *testserver.Server
	line   *line
	direct *redis.Client
}

func newBench(t testing.TB) bench {
	t.Helper()
	s := testserver.Redis(t)
	return bench{s, through(t, s.Addr()), dial(t, s.URL())}
}

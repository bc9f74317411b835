//go:build faults

//part:siege

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/internal/workshop/testserver"
)

// withDescriptors makes a program that may have so many files open, connections among them.
func withDescriptors(t *testing.T, program string, descriptors int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seckill")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", descriptors, program)
	check.Must(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}

// TestSilentConnectionsStopNoSale: more connections than the process has descriptors, that
// say nothing or begin a header and never end it, keep nobody from buying.
func TestSilentConnectionsStopNoSale(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"silent": "", "dripping": "POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nX-A: "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := prepare(t, withDescriptors(t, testserver.Program(t), 300), onServers(t))
			p.start(t)
			p.awaitReady(t)
			voucher := p.onSale(t, 5)
			for range 400 {
				c := check.Value((&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.URL, "http://")))(t)
				t.Cleanup(func() { _ = c.Close() })
				_, _ = c.Write([]byte(begin)) // some are closed already
			}
			p.Client.CloseIdleConnections()
			for n := range 5 {
				p.buys(t, voucher.ID, p.user(n))
			}
			check.Equal(t, "readyz", p.Status("/readyz"), http.StatusOK)
			check.Equal(t, "the log tells of it", p.output.Has("connections that waited were closed to make room"), true)
			if !strings.Contains(p.metrics(t), `seckill_connections_closed_total{listener="main",reason="room"}`) {
				t.Error("the metrics say nothing of it")
			}
		})
	}
}

// TestFewDescriptorsAnswerEverybody: a crowd with many times as many connections as the process has descriptors is told at the
// worst to come again, each of it, and the descriptors that the servers and files of a sale need are left to them.
func TestFewDescriptorsAnswerEverybody(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]settings{"embedded": embeddedSettings(t), "on servers": onServers(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := prepare(t, withDescriptors(t, testserver.Program(t), 96), s)
			p.start(t)
			p.awaitReady(t)
			voucher := p.onSale(t, 1000)
			p.Client.CloseIdleConnections()
			const crowd = 900
			answers := make([]string, crowd)
			check.Volley(crowd, func(n int) {
				got, err := p.Place(t, voucher.ID, p.user(n))
				if answers[n] = strconv.Itoa(got.Status); err != nil {
					answers[n] = err.Error()
				}
			})
			p.Client.CloseIdleConnections()
			counted := map[string]int{}
			for _, answer := range answers {
				counted[answer]++
			}
			t.Logf("%v", counted)
			check.Equal(t, "answers of 201 and 503", counted["201"]+counted["503"], crowd)
			check.That(t, counted["201"] > 0, "nobody has bought: %v", counted)
			check.Eventually(t, "it is ready", func() bool { return p.Status("/readyz") == http.StatusOK })
			check.Equal(t, "the start tells of it", p.output.Has("connections of clients are bounded", "descriptors", "96"), true)
		})
	}
}

// TestDrippingHeadersAreCut: a request whose header arrives byte by byte has some seconds for it.
func TestDrippingHeadersAreCut(t *testing.T) {
	t.Parallel()
	a := start(t, embeddedSettings(t))
	c := check.Value((&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(a.URL, "http://")))(t)
	defer c.Close()
	check.Value(c.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ")))(t)
	check.Eventually(t, "the connection is cut", func() bool {
		_, err := c.Write([]byte("a"))
		return err != nil
	})
}

//go:build faults

//part:siege

package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seckill/internal/testserver"
	"seckill/internal/workshop/check"
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

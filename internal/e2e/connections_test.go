package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seckill/internal/testserver"
	"seckill/model"
)

// withDescriptors makes a program that may have so many files open, connections among them.
func withDescriptors(t *testing.T, program string, descriptors int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "seckill")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", descriptors, program)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
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
				c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				_, _ = c.Write([]byte(begin)) // some are closed already
			}
			p.client.CloseIdleConnections()
			for n := range 5 {
				began := time.Now()
				got := p.call(t, http.MethodPost, "/vouchers/"+voucher.ID+"/seckill", p.token(t, p.user(n), model.RoleUser), nil)
				if took := time.Since(began); got.status != http.StatusCreated || took > 3*time.Second {
					t.Errorf("purchase %d among 400 connections: %d after %s", n, got.status, took)
				}
			}
			if status := p.status(t, "/readyz"); status != http.StatusOK {
				t.Errorf("readyz: %d", status)
			}
			if !strings.Contains(p.output.String(), "connections that waited were closed to make room") {
				t.Error("the log says nothing of it")
			}
			metrics, err := send(p.client, http.MethodGet, p.ops+"/metrics", "", nil)
			if err != nil || !strings.Contains(string(metrics.body), `seckill_connections_closed_total{listener="main",reason="room"}`) {
				t.Errorf("the metrics say nothing of it: %v", err)
			}
		})
	}
}

// TestDrippingHeadersAreCut: a request whose header arrives byte by byte has some seconds for it.
func TestDrippingHeadersAreCut(t *testing.T) {
	t.Parallel()
	a := start(t, embeddedSettings(t))
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(a.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ")); err != nil {
		t.Fatal(err)
	}
	until(t, 15*time.Second, "the connection is cut", func() bool {
		_, err := c.Write([]byte("a"))
		return err != nil
	})
}

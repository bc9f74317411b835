package payment

import (
	"context"
	"net"
	"net/http"
)

// The limits of a client, for tests.
const (
	CallTimeout = callTimeout
	MaxStarts   = maxStarts
)

// Through has a client's connections go through a network of the test.
func (c *Client) Through(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	if t, ok := c.http.Transport.(*http.Transport); ok {
		t.DialContext = dial
	}
}

// Watch shows a client's requests to a test on their way out.
func (c *Client) Watch(see func(*http.Request)) { c.http.Transport = watched{c.http.Transport, see} }

type watched struct {
	http.RoundTripper

	see func(*http.Request)
}

// RoundTrip implements http.RoundTripper.
func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	w.see(r)
	return w.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections is what http.Client asks its transport for.
func (w watched) CloseIdleConnections() {
	if t, ok := w.RoundTripper.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

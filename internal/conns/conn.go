package conns

import (
	"bytes"
	"container/list"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"seckill/internal/budget"
	"seckill/internal/poll"
)

// conn is one connection under watch. As a TCPConn it can close its half, without which an answer may be lost.
type conn struct {
	*net.TCPConn

	guard   *Guard
	network string        // empty: exempt
	parked  atomic.Bool   // it has no place yet; changed under the guard's mutex
	watched atomic.Bool   // a Read has no deadline
	moved   chan struct{} // has an element when the deadline was moved, or the connection closed

	// The guard's mutex guards these.
	counted bool // it has a place
	closed  bool
	since   time.Time     // it waits
	waits   *list.Element // in the guard's waiting; nil: a request is under way
}

func (c *conn) Close() error {
	c.guard.mu.Lock()
	c.guard.forget(c)
	c.guard.mu.Unlock()
	defer poll.Wake(c.moved)
	return c.TCPConn.Close()
}

// Read implements net.Conn. A client that closes its half behind its request may still read the answer (RFC 9293, 3.6),
// but net/http, which watches the connection, would cancel the request. So the end is kept back until it stops to
// watch, or as long as an answer may take; but where the server has set a deadline, it reads the end at once.
func (c *conn) Read(p []byte) (int, error) {
	if c.parked.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), budget.Answer)
		defer cancel()
		if err := poll.Until(ctx, budget.Blink, func() (bool, error) { return c.guard.place(c), nil }); err != nil {
			return 0, err
		}
	}
	n, err := c.TCPConn.Read(p)
	if err != io.EOF || !c.watched.Load() { //nolint:errorlint // package net never wraps it
		return n, err
	}
	patience := time.NewTimer(c.guard.longest)
	defer patience.Stop()
	for err == io.EOF && c.watched.Load() { //nolint:errorlint // likewise
		select {
		case <-c.moved:
			n, err = c.TCPConn.Read(p)
		case <-patience.C:
			return n, err
		}
	}
	return n, err
}

func (c *conn) SetReadDeadline(at time.Time) error {
	c.watched.Store(at.IsZero())
	err := c.TCPConn.SetReadDeadline(at)
	poll.Wake(c.moved)
	return err
}

// unread are the refusals that net/http writes itself, in plain text, and the problem documents in their place.
//
//nolint:gochecknoglobals // constants
var unread = map[string]string{
	"HTTP/1.1 400": `{"type":"/problems/validation","title":"Validation failed","status":400,"detail":"The request cannot be read.","code":"VALIDATION"}`,
	"HTTP/1.1 431": `{"type":"/problems/payload-too-large","title":"Payload too large","status":431,"detail":"The header is larger than 16 KiB.","code":"PAYLOAD_TOO_LARGE"}`,
}

func (c *conn) Write(data []byte) (int, error) {
	status, rest, _ := bytes.Cut(data, []byte("\r\n"))
	problem, ok := unread[string(status[:min(len(status), len("HTTP/1.1 400"))])]
	if !ok || !bytes.HasPrefix(rest, []byte("Content-Type: text/plain")) {
		return c.TCPConn.Write(data)
	}
	_, err := fmt.Fprintf(c.TCPConn, "%s\r\nContent-Type: application/problem+json\r\nCache-Control: no-store\r\n"+
		"X-Request-Id: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		status, rand.Text(), len(problem)+1, problem)
	return len(data), err
}

// Set is the open connections to one server, to be closed at once. The zero Set is empty, and safe for concurrent use.
type Set struct{ open sync.Map }

// Keep puts a connection into the set until it is closed: what it returns is used in its place.
func (s *Set) Keep(conn net.Conn) net.Conn {
	s.open.Store(conn, nil)
	kept := &member{conn, s}
	if raw, ok := conn.(syscall.Conn); ok {
		return rawMember{kept, raw}
	}
	return kept
}

// Cut closes every connection, also those that wait for an answer. Their owners close them again.
func (s *Set) Cut() {
	for conn := range s.open.Range {
		if open, ok := conn.(net.Conn); ok {
			_ = open.Close()
		}
	}
}

type member struct {
	net.Conn

	of *Set
}

func (m *member) Close() error {
	m.of.open.Delete(m.Conn)
	return m.Conn.Close()
}

// rawMember is one whose socket a client looks at before it is used again. (Not at that of a TLS connection.)
type rawMember struct {
	*member
	syscall.Conn
}

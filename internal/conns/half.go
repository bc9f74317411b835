package conns

import (
	"io"
	"time"
)

// Read implements net.Conn. A client that closes its sending half behind its request may still read the answer (RFC 9293,
// section 3.6), and looks like one that has hung up. net/http takes both for gone: it watches the connection of a request
// that it has read, and cancels the request at its end. Therefore that end is kept back until the server stops to watch,
// or for as long as an answer may take. Where the server needs what it reads, it has set a deadline, and hears the end at once.
func (c *conn) Read(p []byte) (int, error) {
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

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(at time.Time) error {
	c.watched.Store(at.IsZero())
	err := c.TCPConn.SetReadDeadline(at)
	c.wake()
	return err
}

// wake makes a Read that keeps an end back look again.
func (c *conn) wake() {
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

package conns

import (
	"bytes"
	"crypto/rand"
	"fmt"
)

// unread are the refusals that net/http writes itself, in plain text, when it cannot read a request, and the problem documents that
// clients get in their place.
//
//nolint:gochecknoglobals // constants
var unread = map[string]string{
	"HTTP/1.1 400": `{"type":"/problems/validation","title":"Validation failed","status":400,"detail":"The request cannot be read.","code":"VALIDATION"}`,
	"HTTP/1.1 431": `{"type":"/problems/payload-too-large","title":"Payload too large","status":431,"detail":"The header is larger than 16 KiB.","code":"PAYLOAD_TOO_LARGE"}`,
}

// Write implements net.Conn.
func (c *conn) Write(data []byte) (int, error) {
	status, rest, _ := bytes.Cut(data, []byte("\r\n"))
	problem, ok := unread[string(status[:min(len(status), len("HTTP/1.1 400"))])]
	if !ok || !bytes.HasPrefix(rest, []byte("Content-Type: text/plain")) {
		return c.TCPConn.Write(data)
	}
	_, err := fmt.Fprintf(c.TCPConn, "%s\r\nContent-Type: application/problem+json\r\nCache-Control: no-store\r\nX-Request-Id: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s\n",
		status, rand.Text(), len(problem)+1, problem)
	return len(data), err
}

package lab

import (
	"net"
	"strings"
	"sync/atomic"
)

// commandCount counts the commands sent to Redis over counted connections:
// pipelined and published ones and subscriptions too, which hooks of the client
// do not see, but not what a script calls inside the server.
type commandCount struct{ sent atomic.Int64 }

// countedConn reads along with what is written.
type countedConn struct {
	net.Conn
	count  *commandCount
	parser commandParser
}

// Write passes on and counts the commands whose name is complete. The client
// writes a connection from one goroutine at a time.
func (c *countedConn) Write(b []byte) (int, error) {
	c.count.sent.Add(c.parser.feed(b))
	return c.Conn.Write(b)
}

// commandParser follows the requests of RESP (https://redis.io/docs/latest/develop/reference/protocol-spec/):
// an array `*<n>\r\n` of bulk strings `$<length>\r\n<bytes>\r\n`, cut anywhere.
type commandParser struct {
	number    int    // being read
	arguments int    // still to come of this command; 0: a command begins
	skip      int    // bytes of an argument still to come, with its line end
	inNumber  bool   // between a '*' or '$' and its line end
	first     bool   // the argument is the command's name
	name      []byte // of the command
}

// feed returns how many commands have become known.
func (p *commandParser) feed(b []byte) (commands int64) {
	for len(b) > 0 {
		if p.skip > 0 {
			n := min(p.skip, len(b))
			if p.first {
				p.name = append(p.name, b[:n]...)
			}
			b, p.skip = b[n:], p.skip-n
			if p.skip == 0 {
				if p.first && counts(string(p.name)) {
					commands++
				}
				p.first, p.name = false, p.name[:0]
				p.arguments--
			}
			continue
		}
		c := b[0]
		b = b[1:]
		switch {
		case c == '*' && !p.inNumber:
			p.inNumber, p.number, p.first = true, 0, true
		case c == '$' && !p.inNumber:
			p.inNumber, p.number = true, 0
		case c >= '0' && c <= '9':
			p.number = 10*p.number + int(c-'0')
		case c == '\n':
			p.inNumber = false
			if p.arguments == 0 {
				p.arguments = p.number
			} else {
				p.skip = p.number + len("\r\n")
			}
		}
	}
	return commands
}

// counts leaves out what opens a connection: it is paid once, not per operation.
func counts(name string) bool {
	switch strings.ToUpper(strings.TrimSuffix(name, "\r\n")) {
	case "HELLO", "AUTH", "SELECT", "CLIENT", "PING":
		return false
	}
	return true
}

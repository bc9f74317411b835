package conns

import (
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
)

// Set is the open connections to one server, which can all be closed at once. The zero Set is empty. It is safe for
// concurrent use.
type Set struct {
	mu   sync.Mutex
	open map[*member]struct{}
}

// Keep puts a connection into the set until it is closed: what it returns is used in its place.
func (s *Set) Keep(conn net.Conn) net.Conn {
	kept := &member{Conn: conn, of: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*member]struct{})
	}
	s.open[kept] = struct{}{}
	if raw, ok := conn.(syscall.Conn); ok {
		return rawMember{kept, raw}
	}
	return kept
}

// Cut closes every connection, also those that wait for an answer. Their owners close them again.
func (s *Set) Cut() {
	s.mu.Lock()
	cut := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, conn := range cut {
		_ = conn.Close()
	}
}

type member struct {
	net.Conn

	of *Set
}

// Close implements net.Conn.
func (m *member) Close() error {
	m.of.mu.Lock()
	delete(m.of.open, m)
	m.of.mu.Unlock()
	return m.Conn.Close()
}

// rawMember is one whose socket a client looks at before it uses it again. (It must not look at that of a TLS
// connection.)
type rawMember struct {
	*member
	syscall.Conn
}

package testserver

import (
	"net"
	"testing"

	"seckill/internal/workshop/check"
)

// Redis are the arguments with which a Redis listens for TLS at a port too, and lets in only who shows a certificate.
func (c Certificates) Redis(port string) []string {
	return []string{
		"--tls-port", port, "--tls-ca-cert-file", c.CA, "--tls-cert-file", c.Cert, "--tls-key-file", c.Key, "--tls-auth-clients", "yes",
		// as which it connects to others
		"--tls-client-cert-file", c.ClientCert, "--tls-client-key-file", c.ClientKey,
	}
}

// redisTLS is a group of Redis servers that speak TLS with each other and tell clients who use it each other's ports for it.
// Beside that each listens in plain text, which is how the test itself asks it. The servers of a nil group do that alone.
type redisTLS struct {
	files Certificates
	at    map[*Server]string
}

func newRedisTLS(files Certificates) *redisTLS {
	return &redisTLS{files: files, at: make(map[*Server]string)}
}

// start runs a server of the group.
func (r *redisTLS) start(t testing.TB, e engine, args []string) *Server {
	t.Helper()
	if r == nil {
		return start(t, e, args)
	}
	address := Address(t)
	_, port, err := net.SplitHostPort(address)
	check.Must(t, err)
	s := start(t, e, append(append(r.files.Redis(port), "--tls-replication", "yes", "--tls-cluster", "yes"), args...))
	r.at[s] = address
	return s
}

// addr is where the other servers, and the clients, know a server.
func (r *redisTLS) addr(s *Server) string {
	if r == nil {
		return s.Addr()
	}
	return r.at[s]
}

// hostPort are the words of a command that names a server.
func (r *redisTLS) hostPort(t testing.TB, s *Server) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(r.addr(s))
	check.Must(t, err)
	return host, port
}

// scheme begins the URLs of the group.
func (r *redisTLS) scheme() string {
	if r == nil {
		return "redis"
	}
	return "rediss"
}

package testserver

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

// Proxy stands between clients and a server, to lose, change or invent what passes; Line cuts or delays it unread.
type Proxy struct {
	listener net.Listener
	carriers sync.WaitGroup

	mu    sync.Mutex
	pairs [][2]net.Conn // client, server
}

// NewProxy starts a proxy to an address. Each connection lasts until through returns; nil carries everything.
func NewProxy(t testing.TB, target string, through func(client, server net.Conn)) *Proxy {
	t.Helper()
	listener := check.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(loopback, "0")))(t)
	if through == nil {
		through = func(client, server net.Conn) { carry(client, server, func(bool) bool { return true }) }
	}
	p := &Proxy{listener: listener}
	p.carriers.Go(func() { p.accept(target, through) })
	t.Cleanup(p.Close)
	return p
}

// Close cuts every connection and refuses further ones.
func (p *Proxy) Close() {
	_ = p.listener.Close()
	p.carriers.Wait()
}

// Addr is where clients find the proxy, "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Sever cuts every connection.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pair := range p.pairs {
		_, _ = pair[0].Close(), pair[1].Close()
	}
	p.pairs = nil
}

// Say makes the server seem to say something to every client.
func (p *Proxy) Say(t testing.TB, text string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pair := range p.pairs {
		_, err := pair[0].Write([]byte(text))
		check.That(t, err == nil, "testserver: say %q: %v", text, err)
	}
}

func (p *Proxy) accept(target string, through func(client, server net.Conn)) {
	defer p.Sever() // once the listener is closed
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.pairs = append(p.pairs, [2]net.Conn{client, server})
		p.mu.Unlock()
		p.carriers.Go(func() {
			defer client.Close()
			defer server.Close()
			through(client, server)
		})
	}
}

// carry carries both directions until an end is closed or arrived closes one. What arrived does not let through is lost.
func carry(client, server net.Conn, arrived func(reply bool) bool) {
	one := func(to, from net.Conn, reply bool) {
		defer to.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if n > 0 && arrived(reply) {
				_, failed := to.Write(buffer[:n])
				err = errors.Join(err, failed)
			}
			if err != nil {
				return
			}
		}
	}
	var replies sync.WaitGroup
	replies.Go(func() { one(client, server, true) })
	one(server, client, false)
	replies.Wait()
}

// Line is a Proxy that can be made to fail, and healed. What is on its way is not looked at.
type Line struct {
	*Proxy

	mu       sync.Mutex
	fault    fault
	healed   chan struct{} // closed by the next Heal
	silenced [][2]net.Conn // something of theirs was swallowed
}

// fault is what happens to what arrives. Nothing is the zero value.
type fault struct {
	swallowRequests, swallowReplies, cutReplies bool
	delay                                       time.Duration // of each reply
}

// NewLine starts a line to an address.
func NewLine(t testing.TB, target string) *Line {
	t.Helper()
	l := &Line{healed: make(chan struct{})}
	l.Proxy = NewProxy(t, target, func(client, server net.Conn) {
		pair := [2]net.Conn{client, server}
		carry(client, server, func(reply bool) bool { return l.arrived(pair, reply) })
	})
	return l
}

// CutReplies lets requests through and breaks the connection at the reply.
func (l *Line) CutReplies() { l.fail(func(f *fault) { f.cutReplies = true }) }

// SwallowReplies lets requests through and lets the caller wait for ever.
func (l *Line) SwallowReplies() { l.fail(func(f *fault) { f.swallowReplies = true }) }

// Hole swallows everything, both ways, without a word.
func (l *Line) Hole() { l.fail(func(f *fault) { f.swallowRequests, f.swallowReplies = true, true }) }

// Slow holds the parts of replies back for a time each, in addition to what held them back before.
func (l *Line) Slow(d time.Duration) { l.fail(func(f *fault) { f.delay += d }) }

func (l *Line) fail(change func(*fault)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.fault)
}

// Heal ends every fault. Connections that lost something are closed: a stream with a gap is of no use.
func (l *Line) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = fault{}
	for _, pair := range l.silenced {
		_, _ = pair[0].Close(), pair[1].Close()
	}
	l.silenced = nil
	close(l.healed)
	l.healed = make(chan struct{})
}

// arrived reports whether what has come goes through; a reply does after its delay.
func (l *Line) arrived(pair [2]net.Conn, reply bool) bool {
	l.mu.Lock()
	f, healed := l.fault, l.healed
	lost := reply && f.swallowReplies || !reply && f.swallowRequests
	if lost {
		l.silenced = append(l.silenced, pair)
	}
	l.mu.Unlock()
	switch {
	case reply && f.cutReplies:
		_, _ = pair[0].Close(), pair[1].Close()
		return false
	case reply && f.delay > 0:
		select {
		case <-time.After(f.delay):
		case <-healed:
		}
	}
	return !lost
}

// Certificates are files in PEM: an authority of its own, and what it has signed.
type Certificates struct {
	CA                    string
	Cert, Key             string // of a server
	ClientCert, ClientKey string
}

// NewCertificates makes an authority, a server's certificate for one name and no address, and a client's.
func NewCertificates(t testing.TB, name string) (c Certificates) {
	t.Helper()
	dir := t.TempDir()
	authority := &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	// issue writes a certificate that is good for an hour from now, and its key, which without a signer signs it too.
	issue := func(template *x509.Certificate, by *ecdsa.PrivateKey, name string) (_, _ string, _ *ecdsa.PrivateKey) {
		key := check.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		template.SerialNumber = check.Value(rand.Int(rand.Reader, big.NewInt(1<<62)))(t)
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
		der := check.Value(x509.CreateCertificate(rand.Reader, template, authority, &key.PublicKey, cmp.Or(by, key)))(t)
		secret := check.Value(x509.MarshalPKCS8PrivateKey(key))(t)
		cert, keyFile := filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
		check.Must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
		check.Must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
		return cert, keyFile, key
	}
	var by *ecdsa.PrivateKey
	c.CA, _, by = issue(authority, nil, "ca")
	c.Cert, c.Key, _ = issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, by, "server")
	c.ClientCert, c.ClientKey, _ = issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "client"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, by, "client")
	return c
}

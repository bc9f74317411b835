package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"seckill/internal/workshop/check"
)

// Certificates are files in PEM: an authority of its own, and what it has signed.
type Certificates struct {
	CA                    string
	Cert, Key             string // of a server
	ClientCert, ClientKey string
}

// NewCertificates makes an authority, a server's certificate for one name and no address, and a client's.
func NewCertificates(t testing.TB, name string) Certificates {
	t.Helper()
	dir := t.TempDir()
	authority := &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := check.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	file := func(name string) string { return filepath.Join(dir, name+".pem") }
	sign(t, authority, authority, key, key, file("ca"), file("ca-key"))
	c := Certificates{
		CA: file("ca"), Cert: file("server"), Key: file("server-key"), ClientCert: file("client"), ClientKey: file("client-key"),
	}
	issue := func(common string, names []string, usage x509.ExtKeyUsage, cert, keyFile string) {
		own := check.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: common}, DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		}
		sign(t, template, authority, own, key, cert, keyFile)
	}
	issue("server", []string{name}, x509.ExtKeyUsageServerAuth, c.Cert, c.Key)
	issue("client", nil, x509.ExtKeyUsageClientAuth, c.ClientCert, c.ClientKey)
	return c
}

// sign writes a certificate that is good for an hour from now, and its key.
func sign(t testing.TB, template, authority *x509.Certificate, key, by *ecdsa.PrivateKey, certFile, keyFile string) {
	t.Helper()
	template.SerialNumber = check.Value(rand.Int(rand.Reader, big.NewInt(1<<62)))(t)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	der := check.Value(x509.CreateCertificate(rand.Reader, template, authority, &key.PublicKey, by))(t)
	secret := check.Value(x509.MarshalPKCS8PrivateKey(key))(t)
	check.Must(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	check.Must(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
}

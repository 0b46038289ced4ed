package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

var serial atomic.Int64

// NewAuthority makes an authority with a new key.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	p := sign(t, template, template, nil)
	a.key = p.key
	a.pem = p.Cert
	var err error
	if a.cert, err = x509.ParseCertificate(p.der); err != nil {
		t.Fatal(err)
	}
	return a
}

// PEM returns the authority's own certificate.
func (a *Authority) PEM() []byte { return a.pem }

// Pool returns a pool with only this authority.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Pair is a certificate with its key, as PEM.
type Pair struct {
	Cert, Key []byte

	der []byte
	key *ecdsa.PrivateKey
}

// Option changes a certificate before it is signed.
type Option func(*x509.Certificate)

// URI adds a URI SAN, byte for byte.
func URI(text string) Option {
	return func(c *x509.Certificate) { c.URIs = append(c.URIs, &url.URL{Opaque: text}) }
}

// DNS adds a DNS SAN.
func DNS(name string) Option {
	return func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, name) }
}

// CN sets the subject's common name.
func CN(name string) Option {
	return func(c *x509.Certificate) { c.Subject.CommonName = name }
}

// Loopback adds 127.0.0.1, for servers on loopback.
func Loopback() Option {
	return func(c *x509.Certificate) { c.IPAddresses = append(c.IPAddresses, net.IPv4(127, 0, 0, 1)) }
}

// Expired makes a certificate that expired a minute ago.
func Expired() Option { return ExpiresIn(-time.Minute) }

// ExpiresIn makes a certificate with a lifetime of 365 days that expires after d.
func ExpiresIn(d time.Duration) Option { return Expiring(d, 365*24*time.Hour) }

// Expiring makes a certificate with this lifetime that expires after d.
func Expiring(d, lifetime time.Duration) Option {
	return func(c *x509.Certificate) {
		c.NotAfter = time.Now().Add(d)
		c.NotBefore = c.NotAfter.Add(-lifetime)
	}
}

// Pair signs a certificate for servers and clients. It is valid for a year.
func (a *Authority) Pair(t testing.TB, opts ...Option) Pair {
	t.Helper()
	c := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, o := range opts {
		o(c)
	}
	return sign(t, c, a.cert, a.key)
}

func sign(t testing.TB, c, parent *x509.Certificate, by *ecdsa.PrivateKey) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key // self-signed
	}
	c.SerialNumber = big.NewInt(serial.Add(1))
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		der:  der, key: key,
	}
}

// TLS returns the pair for tls.Config.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Write writes the pair as name.crt and name.key, and replaces old files.
func (p Pair) Write(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	return File(t, dir, name+".crt", p.Cert), File(t, dir, name+".key", p.Key)
}

// File writes a file, replaces an old one, and returns its path.
func File(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

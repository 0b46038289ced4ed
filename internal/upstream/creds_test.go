package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// authority signs certificates for the tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.pem, _, a.key = a.sign(a.cert, nil)
	return a
}

// sign returns certificate and key as PEM. Without a parent it signs itself.
func (a *authority) sign(c *x509.Certificate, parent *ecdsa.PrivateKey) (cert, key []byte, k *ecdsa.PrivateKey) {
	a.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if parent == nil {
		parent = k
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &k.PublicKey, parent)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), k
}

// leaf returns the PEM of a certificate for name.
func (a *authority) leaf(name string) (cert, key []byte) {
	cert, key, _ = a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.key)
	return cert, key
}

func TestTLSWithFilesThatAreRenewed(t *testing.T) {
	ca := newAuthority(t)
	serverPair, err := tls.X509KeyPair(ca.leaf("origin.test"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(mustParse(t, ca.pem))
	f := startFake(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{serverPair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})))

	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// At first the relay has a certificate that the origin does not trust.
	wrong, right := newAuthority(t), ca
	cert, key := wrong.leaf("relay")
	files := TLSFiles{CAFile: write("ca", ca.pem), CertFile: write("cert", cert), KeyFile: write("key", key), ServerName: "origin.test"}
	r := startRelay(t, Options{Origins: []OriginOptions{{Address: f.address, TLS: files}}})
	_, sink := r.stream(named(rds, "a"))
	sink.until(t, "failure", func() bool { return sink.lastStatus().Failed })

	cert, key = right.leaf("relay")
	write("cert", cert)
	write("key", key)
	f.next().request()
	sink.until(t, "connection", func() bool { return sink.lastStatus().Connected })
}

func mustParse(t *testing.T, b []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(b)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTLSFaultsShowAtTheStart(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []TLSFiles{{CAFile: "/nowhere"}, {CAFile: empty}, {CertFile: empty, KeyFile: empty}, {KeyFile: empty}} {
		if _, err := f.credentials(); err == nil {
			t.Errorf("%+v: no error", f)
		}
	}
}

package envoy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"xdsrelay/internal/xdstest"
)

// issuer signs the certificates that Envoy shows to its clients.
type issuer struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

// newIssuer makes a CA.
func newIssuer(t testing.TB) *issuer {
	t.Helper()
	ca := &issuer{t: t, pool: x509.NewCertPool()}
	ca.cert, ca.key, _ = ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	ca.pool.AddCert(ca.cert)
	return ca
}

// sign issues a certificate. The first one signs itself.
func (ca *issuer) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		ca.t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := ca.cert, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, key, der
}

// secret is a new certificate for "localhost" with this common name, as the
// Secret "server".
func (ca *issuer) secret(commonName string) *tlsv3.Secret {
	ca.t.Helper()
	_, key, der := ca.sign(&x509.Certificate{Subject: pkix.Name{CommonName: commonName}, DNSNames: []string{"localhost"}})
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	inline := func(kind string, der []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{
			InlineBytes: pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})}}
	}
	return &tlsv3.Secret{Name: "server", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline("CERTIFICATE", der), PrivateKey: inline("PRIVATE KEY", keyDER)}}}
}

// startTLSTraffic sends requests to a TLS listener, each over a new connection.
// It counts the common names of the certificates as backends.
func startTLSTraffic(e *envoy, listener string, ca *issuer) *traffic {
	e.t.Helper()
	var address string
	xdstest.Eventually(e.t, "an answer of the listener "+listener, func() (err error) {
		if address, err = e.listenerAddress(listener); err == nil {
			_, err = requestTLS(e.t.Context(), address, ca.pool)
		}
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	tr := &traffic{t: e.t, cancel: cancel, by: make(map[string]int)}
	began := time.Now()
	for range 2 {
		tr.wait.Go(func() {
			for ctx.Err() == nil {
				name, err := requestTLS(ctx, address, ca.pool)
				tr.count(ctx, time.Since(began), name, err)
			}
		})
	}
	e.t.Cleanup(tr.stop)
	return tr
}

// requestTLS sends a request over a new TLS connection and returns the common
// name of the certificate that it got.
func requestTLS(ctx context.Context, address string, pool *x509.CertPool) (string, error) {
	var name string
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err == nil {
				name = c.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
			}
			return c, err
		}}}
	_, err := send(ctx, client, address, "localhost", "/")
	return name, err
}

// secretsAllowed lets the relay give Secrets to clients without mTLS.
var secretsAllowed = xdstest.Config{"downstream.secrets": "allow"}

// The certificate of a listener is rotated under traffic.
func TestCertificateRotation(t *testing.T) {
	underTraffic(t, secretsAllowed, rotateCertificates,
		repeated(`cluster\.web|cluster_manager\.cds|listener_manager\.lds|http\.test\.rds\.in`))
}

func rotateCertificates(t *testing.T, s *scene) *envoy {
	ca := newIssuer(t)
	in := listener("in", manager("in", s.way.source))
	in.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&tlsv3.DownstreamTlsContext{
			CommonTlsContext: &tlsv3.CommonTlsContext{TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{
				{Name: "server", SdsConfig: s.way.source}}}})}}
	s.origin.Put("edge", append([]types.Resource{ca.secret("certificate 0")},
		cluster("web", s.way.source), endpoints("web", xdstest.StartHTTPBackend(t, "blue")), in, routes("in", "web"))...)
	e := s.envoy("envoy-1", nil)
	tr := startTLSTraffic(e, "in", ca)
	for i := range 5 {
		if i > 0 {
			s.origin.Put("edge", ca.secret(fmt.Sprint("certificate ", i)))
		}
		tr.reaches(fmt.Sprint("certificate ", i))
		tr.goesOn()
	}
	return e
}

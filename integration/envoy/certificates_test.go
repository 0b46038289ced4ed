package envoy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// serverCertificate is a new certificate for "localhost" as the Secret "server".
// A second DNS name tells it from others.
func serverCertificate(t testing.TB, ca *tlstest.Authority, name string) *tlsv3.Secret {
	t.Helper()
	return certificate("server", ca.Pair(t, tlstest.DNS("localhost"), tlstest.DNS(name)))
}

// startTLSTraffic sends requests to a TLS listener, each over a new connection.
// It counts the second DNS names of the certificates as backends.
func startTLSTraffic(e *envoy, listener string, ca *tlstest.Authority) *traffic {
	e.t.Helper()
	var address string
	xdstest.Eventually(e.t, "an answer of the listener "+listener, func() (err error) {
		if address, err = e.listenerAddress(listener); err == nil {
			_, err = requestTLS(e.t.Context(), address, ca.Pool())
		}
		return err
	})
	return newTraffic(e.t, 2, func(ctx context.Context, count func(string, error)) {
		for ctx.Err() == nil {
			count(requestTLS(ctx, address, ca.Pool()))
		}
	})
}

// requestTLS sends a request over a new TLS connection and returns the second
// DNS name of the certificate that it got.
func requestTLS(ctx context.Context, address string, pool *x509.CertPool) (string, error) {
	var name string
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err == nil {
				name = c.(*tls.Conn).ConnectionState().PeerCertificates[0].DNSNames[1]
			}
			return c, err
		}}}
	_, err := answered(send(ctx, client, "http://"+address+"/", "localhost", nil))
	return name, err
}

// secretsAllowed lets the relay give Secrets to clients without mTLS.
var secretsAllowed = xdstest.Config{"downstream.secrets": "allow"}

// The certificate of a listener is rotated under traffic.
func TestCertificateRotation(t *testing.T) {
	t.Parallel()
	underTraffic(t, secretsAllowed, rotateCertificates,
		repeated(`cluster\.web|cluster_manager\.cds|listener_manager\.lds|http\.test\.rds\.in`))
}

func rotateCertificates(t *testing.T, s *scene) *envoy {
	ca := tlstest.NewAuthority(t)
	in := withCertificate(xdstest.HTTPListener("in", xdstest.Manager("in", s.way.source)), "server", s.way.source)
	s.origin.Put("edge", serverCertificate(t, ca, "certificate-0"),
		cluster("web", s.way.source), endpoints("web", xdstest.StartHTTPBackend(t, "blue")), in, routes("in", "web"))
	e := s.envoy("envoy-1", nil)
	tr := startTLSTraffic(e, "in", ca)
	for i := range 5 {
		if i > 0 {
			s.origin.Put("edge", serverCertificate(t, ca, fmt.Sprint("certificate-", i)))
		}
		tr.reaches(fmt.Sprint("certificate-", i))
		tr.goesOn()
	}
	return e
}

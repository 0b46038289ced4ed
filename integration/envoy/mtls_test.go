package envoy

import (
	"crypto/tls"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// relayName is the relay's DNS name in config/clients/envoy-mtls.yaml.
const relayName = "relay.example.com"

// certificates are those of a scene with mTLS. One authority signs all.
type certificates struct {
	t   testing.TB
	ca  *tlstest.Authority
	dir string
}

func newCertificates(t testing.TB) *certificates {
	t.Helper()
	c := &certificates{t: t, ca: tlstest.NewAuthority(t), dir: t.TempDir()}
	tlstest.File(t, c.dir, "ca.crt", c.ca.PEM())
	return c
}

// relayConfig has the identity rule that the bootstrap's comment shows.
func (c *certificates) relayConfig() xdstest.Config {
	cert, key := c.ca.Pair(c.t, tlstest.DNS(relayName)).Write(c.t, c.dir, "relay")
	return xdstest.Config{
		"downstream.tls": map[string]any{
			"cert_file": cert, "key_file": key, "client_ca_file": filepath.Join(c.dir, "ca.crt")},
		"downstream.identity": `("spiffe://example.com/" + node.id) in peer.uri_sans`,
	}
}

// originOption makes an origin ask for the same certificates as the relay.
func (c *certificates) originOption() grpc.ServerOption {
	return grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{c.ca.Pair(c.t, tlstest.DNS(relayName)).TLS(c.t)},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: c.ca.Pool(), MinVersion: tls.VersionTLS12,
	}))
}

// identify puts a certificate for this node into the bootstrap.
func (c *certificates) identify(b bootstrap, node string) {
	cert, key := c.ca.Pair(c.t, tlstest.URI("spiffe://example.com/"+node)).Write(c.t, c.dir, node)
	common := b.cluster("relay").at("transport_socket", "typed_config", "common_tls_context")
	common["tls_certificates"] = []any{bootstrap{
		"certificate_chain": bootstrap{"filename": cert}, "private_key": bootstrap{"filename": key}}}
	common.at("validation_context", "trusted_ca")["filename"] = filepath.Join(c.dir, "ca.crt")
}

package upstream

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"xdsrelay/internal/telemetry/tlsfiles"
	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/upstream/connections"
	"xdsrelay/internal/xds"
)

// secured starts an origin that presents this certificate. If clients is not nil, the relay must
// present a certificate of that authority.
func secured(t *testing.T, shows tlstest.Pair, clients *tlstest.Authority) *fakeOrigin {
	t.Helper()
	conf := &tls.Config{Certificates: []tls.Certificate{shows.TLS(t)}}
	if clients != nil {
		conf.ClientCAs, conf.ClientAuth = clients.Pool(), tls.RequireAndVerifyClientCert
	}
	return startFake(t, grpc.Creds(credentials.NewTLS(conf)))
}

// A connection is made only if the origin's certificate is valid for the target. If the origin
// requires a client certificate, the relay's must be valid too.
func TestTLSToOrigins(t *testing.T) {
	ca, other := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	dir := t.TempDir()
	trust := tlstest.File(t, dir, "ca", ca.PEM())
	distrust := tlstest.File(t, dir, "other", other.PEM())
	cert, key := ca.Pair(t, tlstest.URI("spiffe://test/relay")).Write(t, dir, "relay")
	badCert, badKey := other.Pair(t, tlstest.URI("spiffe://test/relay")).Write(t, dir, "bad")
	oldCert, oldKey := ca.Pair(t, tlstest.URI("spiffe://test/relay"), tlstest.Expired()).Write(t, dir, "old")
	origin := ca.Pair(t, tlstest.DNS("origin.test"))

	for name, c := range map[string]struct {
		shows   tlstest.Pair
		clients *tlstest.Authority
		files   *connections.TLSFiles
		fails   string // part of the error; empty: it connects
	}{
		"TLS":                         {origin, nil, &connections.TLSFiles{CAFile: trust, ServerName: "origin.test"}, ""},
		"by its address":              {ca.Pair(t, tlstest.Loopback()), nil, &connections.TLSFiles{CAFile: trust}, ""},
		"mTLS":                        {origin, ca, &connections.TLSFiles{CAFile: trust, CertFile: cert, KeyFile: key, ServerName: "origin.test"}, ""},
		"another authority":           {origin, nil, &connections.TLSFiles{CAFile: distrust, ServerName: "origin.test"}, "certificate signed by unknown authority"},
		"the system's authorities":    {origin, nil, &connections.TLSFiles{ServerName: "origin.test"}, "certificate signed by unknown authority"},
		"empty":                       {ca.Pair(t, tlstest.Loopback()), nil, &connections.TLSFiles{}, "certificate signed by unknown authority"},
		"expired":                     {ca.Pair(t, tlstest.DNS("origin.test"), tlstest.Expired()), nil, &connections.TLSFiles{CAFile: trust, ServerName: "origin.test"}, "certificate has expired"},
		"another name":                {origin, nil, &connections.TLSFiles{CAFile: trust, ServerName: "other.test"}, "not other.test"},
		"another address":             {origin, nil, &connections.TLSFiles{CAFile: trust}, "doesn't contain any IP SANs"},
		"no certificate of the relay": {origin, ca, &connections.TLSFiles{CAFile: trust, ServerName: "origin.test"}, "certificate required"},
		"a certificate of another":    {origin, ca, &connections.TLSFiles{CAFile: trust, CertFile: badCert, KeyFile: badKey, ServerName: "origin.test"}, "tls: "},
		"an expired certificate":      {origin, ca, &connections.TLSFiles{CAFile: trust, CertFile: oldCert, KeyFile: oldKey, ServerName: "origin.test"}, "tls: "},
		"plaintext to TLS":            {origin, nil, nil, "the server closed the connection; if it needs TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			eachVariant(t, func(t *testing.T, v xds.Variant) {
				f := secured(t, c.shows, c.clients)
				r := startRelay(t, v, Options{Origins: []OriginOptions{{Address: f.address, TLS: c.files}}})
				_, sink := r.stream(named(rds, "a"))
				if c.fails == "" {
					f.next().got(ask(v, "RDS", "a"))
					return
				}
				sink.Until(t, "failure", func() bool {
					s := sink.lastStatus()
					return s.Failed && s.Err != nil && strings.Contains(s.Err.Error(), c.fails)
				})
			})
		})
	}
}

// by returns the name in the relay's certificate on a stream's connection.
func (s *fakeStream) by() string {
	p, _ := peer.FromContext(s.Context())
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		s.t.Fatalf("nothing was proven: %v", p)
	}
	return info.State.PeerCertificates[0].Subject.CommonName
}

// A new connection uses the certificate and CAs that were read last. Invalid files change nothing.
func TestTLSWithFilesThatAreRenewed(t *testing.T) {
	ca := tlstest.NewAuthority(t)
	f := secured(t, ca.Pair(t, tlstest.DNS("origin.test")), ca)
	dir := t.TempDir()
	pair := func(by *tlstest.Authority, name string) (cert, key string) {
		return by.Pair(t, tlstest.CN(name)).Write(t, dir, "relay")
	}
	// At first the relay has a certificate that the origin does not trust.
	cert, key := pair(tlstest.NewAuthority(t), "stranger")
	trust := tlstest.File(t, dir, "ca", ca.PEM())
	r := startRelay(t, xds.SotW, Options{
		Origins: []OriginOptions{{
			Address: f.address, TLS: &connections.TLSFiles{CAFile: trust, CertFile: cert, KeyFile: key, ServerName: "origin.test"},
			StreamsPerConnection: 1, // so that each stream makes a connection
		}},
	})
	_, sink := r.stream(named(rds, "a"))
	sink.Until(t, "failure", func() bool { return sink.lastStatus().Failed })
	certs := r.client.origins[0].transport.(*grpcOrigin).certs
	connects := func(as string) {
		t.Helper()
		s := f.next()
		s.request()
		if got := s.by(); got != as {
			t.Fatalf("the relay's certificate has the name %q, want %q", got, as)
		}
	}
	pair(ca, "first")
	certs.Reload()
	connects("first")
	sink.Until(t, "connection", func() bool { return sink.lastStatus().Connected })

	tlstest.File(t, dir, "relay.key", []byte("broken"))
	certs.Reload()
	r.stream(named(rds, "b"))
	connects("first")

	pair(ca, "second")
	certs.Reload()
	r.stream(named(rds, "c"))
	connects("second")

	tlstest.File(t, dir, "ca", tlstest.NewAuthority(t).PEM())
	certs.Reload()
	_, sink = r.stream(named(rds, "d"))
	sink.Until(t, "distrust", func() bool {
		s := sink.lastStatus()
		return s.Failed && strings.Contains(s.Err.Error(), "unknown authority")
	})
}

func TestTLSFaultsShowAtTheStart(t *testing.T) {
	_, err := New(Options{Origins: []OriginOptions{{Name: "o", Address: "127.0.0.1:1", TLS: &connections.TLSFiles{CAFile: "/nowhere"}}}})
	if fault := new(tlsfiles.Error); !errors.As(err, &fault) || fault.File != tlsfiles.CAFile ||
		!strings.HasPrefix(err.Error(), "upstream: origin o: tls: ca_file: open /nowhere") {
		t.Error(err)
	}
}

// Invalid renewed files are shown as faults of their origin.
func TestRejectedCertificatesOfAnOriginAreShown(t *testing.T) {
	ca, dir := tlstest.NewAuthority(t), t.TempDir()
	r := startRelay(t, xds.SotW, Options{Origins: []OriginOptions{{Name: "one", Address: "127.0.0.1:1", TLS: &connections.TLSFiles{CAFile: tlstest.File(t, dir, "ca", ca.PEM())}}}})
	look := func() []string {
		r.client.origins[0].transport.(*grpcOrigin).certs.Reload()
		return r.client.Origins()[0].Faults
	}
	if f := look(); f != nil {
		t.Errorf("%+v, before anything changed", f)
	}
	tlstest.File(t, dir, "ca", nil)
	if f := look(); len(f) != 1 || !strings.HasPrefix(f[0], "tls.ca_file: no certificate in ") {
		t.Errorf("%+v", f)
	}
	tlstest.File(t, dir, "ca", ca.PEM())
	if f := look(); f != nil {
		t.Errorf("%+v, though it is what is in force", f)
	}
}

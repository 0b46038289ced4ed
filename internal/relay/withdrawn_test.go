package relay

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// A client loses its access when its authority is removed from client_ca_file: the relay ends its
// streams at once, max_connection_age ends the connection, and no other handshake succeeds.
func TestP6_WithdrawnAuthorityKeepsNoAccess(t *testing.T) {
	dir := t.TempDir()
	secret := "resources:\n- {'@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret, name: s, generic_secret: {secret: {inline_string: x}}}\n"
	if err := os.Mkdir(filepath.Join(dir, "origin"), 0o700); err != nil {
		t.Fatal(err)
	}
	tlstest.File(t, dir, "origin/sds.yaml", []byte(secret))
	was, is := tlstest.NewAuthority(t), tlstest.NewAuthority(t)
	cert, key := was.Pair(t, tlstest.Loopback()).Write(t, dir, "relay")
	ca := tlstest.File(t, dir, "ca.crt", was.PEM())
	g := newReloadFixtureOf(t, fmt.Sprintf("name: r\nupstream: {origins: [{address: 'file:%s'}]}\nadmin: {address: '127.0.0.1:0', token_file: token}\n"+
		"downstream:\n  address: 127.0.0.1:0\n  drain: 0s\n  max_connection_age: 100ms\n  identity: node.id in peer.uri_sans\n  tls: {cert_file: %s, key_file: %s, client_ca_file: %s}\n", filepath.Join(dir, "origin"), cert, key, ca))
	address := g.r.listeners[0].Addr().String()
	xdstest.Run(t, func(ctx context.Context) error { return g.r.Run(ctx, context.Background()) })
	<-g.r.registry.Running()
	const id = "spiffe://test/n"
	conf := &tls.Config{RootCAs: was.Pool(), Certificates: []tls.Certificate{was.Pair(t, tlstest.URI(id)).TLS(t)}}
	conn := xdstest.Dial(t, address, credentials.NewTLS(conf))
	call, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ask := func() (discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, error) {
		s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(call)
		if err != nil {
			return nil, err
		}
		_ = s.Send(&discoveryv3.DeltaDiscoveryRequest{ // Recv says why not
			Node:    &corev3.Node{Id: id, Cluster: "k"},
			TypeUrl: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", ResourceNamesSubscribe: []string{"s"},
		})
		m, err := s.Recv()
		if err == nil && len(m.Resources) != 1 {
			err = fmt.Errorf("%v", m)
		}
		return s, err
	}
	s, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	tlstest.File(t, dir, "ca.crt", is.PEM())
	if _, err := s.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream from before: %v", err)
	}
	// Until its connection ends, the client is told why it gets nothing.
	xdstest.Eventually(t, "the end of the connection", func() error {
		if _, err := ask(); status.Code(err) == codes.PermissionDenied {
			return err
		}
		return nil
	})
	for range 5 {
		if _, err := ask(); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream later: %v", err)
		}
	}
}

// Two listeners with the same address and TLS match by position: each keeps its own rule.
func TestReloadOfListenersOfOneText(t *testing.T) {
	two := func(first, second string) string {
		const l = "  - {address: '127.0.0.1:0', identity: 'node.id == %q'}\n"
		return head + fmt.Sprintf(l, first) + fmt.Sprintf(l, second)
	}
	g := newReloadFixtureOf(t, two("a", "b"))
	in := func() (out string) {
		for _, e := range g.r.listeners {
			for _, id := range []string{"a", "b", "c"} {
				if admits(t, e.policy, id) {
					out += id
				}
			}
		}
		return out
	}
	g.says(g.replaceBy(two("a", "c")), "changed=downstream.listeners[1].identity\n")
	if got := in(); got != "ac" {
		t.Errorf("they let in %q, want a and c", got)
	}
	// With another number of them there is no match.
	g.says(g.replaceBy(head+"  - {address: '127.0.0.1:0', identity: 'node.id == \"b\"'}\n"), "needs a restart")
	if got := in(); got != "ac" {
		t.Errorf("they let in %q, want a and c", got)
	}
	// A listener before them changes nothing.
	g.replaceBy(head + "  - {address: '127.0.0.2:0'}\n" + two("b", "a")[len(head):])
	if got := in(); got != "ba" {
		t.Errorf("they let in %q, want b and a", got)
	}
}

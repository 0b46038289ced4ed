package grpcio

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/telemetry/tlsfiles/tlstest"
	"xdsrelay/internal/xdstest"
)

// node and key are those of config/clients/grpc.json under the default rules.
const (
	node = "grpc-1"
	key  = "grpc"
)

// C-core finds a service through the relay and is called all the time. It
// follows new endpoints, restarts of the origin and of the relay, and routes to
// a new cluster. No call fails.
func TestGRPCIO(t *testing.T) {
	for _, variant := range []string{"sotw", "delta"} {
		for _, kind := range xdstest.Caches {
			t.Run(variant+"-origin/"+kind, func(t *testing.T) {
				xdstest.PythonEnv(t) // skips before anything is built
				t.Parallel()
				follow(t, variant, kind)
			})
		}
	}
}

func follow(t *testing.T, variant, kind string) {
	blue, green := xdstest.StartGRPCBackend(t, "blue"), xdstest.StartGRPCBackend(t, "green")
	o := xdstest.StartOrigin(t, xdstest.OriginOptions{Cache: kind})
	o.Put(key, service("greeter", blue)...)
	config := xdstest.QuickConfig().With(xdstest.Config{
		"upstream.origins":   xdstest.Origins(o.Address),
		"upstream.variant":   variant,
		"downstream.address": xdstest.FreeAddress(t),
		// Longer than linear caches may take from a cluster's deletion to the routes.
		"downstream.removal_delay": "1s",
	})
	r := xdstest.StartRelay(t, config)
	noNacks := func(r *xdstest.Relay) {
		t.Helper()
		if nacks := r.Metric("downstream_nacks_total"); nacks != 0 {
			t.Errorf("gRPC refused %v responses", nacks)
		}
	}
	c := startCaller(t, r.Address, "greeter")
	c.reaches("blue")

	o.Put(key, endpoints("greeter", green))
	c.reaches("green")

	// The origin restarts, and comes back with other endpoints.
	o.Stop()
	c.goesOn()
	o.Put(key, endpoints("greeter", blue))
	o.Start()
	c.reaches("blue")

	// The relay restarts, after SIGTERM or SIGKILL. While it is away, the origin
	// gets other endpoints.
	noNacks(r)
	if kind == xdstest.Linear {
		r.Stop()
	} else {
		r.Kill()
	}
	c.goesOn()
	o.Put(key, endpoints("greeter", green))
	r = xdstest.StartRelay(t, config)
	c.reaches("green")

	// A new cluster replaces the old one: all in one step of a snapshot cache, in
	// the order of types of linear caches.
	o.Change(key, []types.Resource{xdstest.Routes("greeter", "greeter-2", 0), cluster("greeter-2"), endpoints("greeter-2", blue)},
		map[string][]string{resource.ClusterType: {"greeter"}, resource.EndpointType: {"greeter"}})
	c.reaches("blue")
	c.goesOn()

	noNacks(r)
	xdstest.Eventually(t, "the client in /clients", func() error { return inStep(r) })
}

// C-core reaches the relay over mutual TLS with config/clients/grpc-mtls.json. The relay's identity
// rule binds the node to its certificate.
func TestMutualTLS(t *testing.T) {
	xdstest.PythonEnv(t)
	t.Parallel()
	ca, dir := tlstest.NewAuthority(t), t.TempDir()
	authority := tlstest.File(t, dir, "ca.crt", ca.PEM())
	serverCert, serverKey := ca.Pair(t, tlstest.Loopback()).Write(t, dir, "relay")
	clientCert, clientKey := ca.Pair(t, tlstest.URI("spiffe://example.com/"+node)).Write(t, dir, "client")
	o := xdstest.StartOrigin(t, xdstest.OriginOptions{})
	o.Put(key, service("greeter", xdstest.StartGRPCBackend(t, "blue"))...)
	r := xdstest.StartRelay(t, xdstest.QuickConfig().With(xdstest.Config{
		"upstream.origins":    xdstest.Origins(o.Address),
		"downstream.tls":      map[string]any{"cert_file": serverCert, "key_file": serverKey, "client_ca_file": authority},
		"downstream.identity": `("spiffe://example.com/" + node.id) in peer.uri_sans`,
	}))
	startCallerBy(t, bootstrap(t, "grpc-mtls.json", map[string]string{
		"relay.example.com:15010": r.Address, "/etc/grpc/tls/ca.crt": authority,
		"/etc/grpc/tls/client.crt": clientCert, "/etc/grpc/tls/client.key": clientKey,
	}), "greeter").reaches("blue")
}

// A client that starts while the origin is away gets answers once the origin is
// there. Its cluster asks for load reports, which the relay does not serve: calls
// are answered all the same.
func TestOriginAppearsAndNoLoadReports(t *testing.T) {
	xdstest.PythonEnv(t)
	t.Parallel()
	o := xdstest.StartOrigin(t, xdstest.OriginOptions{})
	o.Stop()
	resources := service("greeter", xdstest.StartGRPCBackend(t, "blue"))
	for _, r := range resources {
		if c, ok := r.(*clusterv3.Cluster); ok {
			c.LrsServer = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}}}
		}
	}
	o.Put(key, resources...)
	r := xdstest.StartRelay(t, xdstest.QuickConfig().With(xdstest.Config{"upstream.origins": xdstest.Origins(o.Address)}))
	c := startCaller(t, r.Address, "greeter")
	xdstest.Eventually(t, "a refused stream", func() error {
		if r.Metric("refused_total", "reason", "origin_unreachable") == 0 {
			return errors.New("none")
		}
		return nil
	})
	o.Start()
	c.reaches("blue")
	c.goesOn()
	xdstest.Eventually(t, "the client in /clients", func() error { return inStep(r) })
}

// C-core uses another replica of the relay if the first one refuses it or drains. Both are addresses
// of one name.
func TestReplicas(t *testing.T) {
	xdstest.PythonEnv(t)
	t.Parallel()
	blue, green := xdstest.StartGRPCBackend(t, "blue"), xdstest.StartGRPCBackend(t, "green")
	o := xdstest.StartOrigin(t, xdstest.OriginOptions{})
	o.Put(key, service("greeter", blue)...)
	config := func(origin string) xdstest.Config {
		return xdstest.QuickConfig().With(xdstest.Config{
			"upstream.origins": xdstest.Origins(origin), "downstream.address": xdstest.FreeAddress(t), "downstream.drain": "2s",
		})
	}
	first, second := config(xdstest.FreeAddress(t)), config(o.Address) // the first one has no origin
	away, r := xdstest.StartRelay(t, first), xdstest.StartRelay(t, second)
	c := startCaller(t, "ipv4:"+away.Address+","+r.Address, "greeter")
	c.reaches("blue")
	xdstest.Eventually(t, "the client at the second relay", func() error { return inStep(r) })

	away.Stop()
	first["upstream.origins"] = xdstest.Origins(o.Address)
	healthy := xdstest.StartRelay(t, first)
	r.Signal(syscall.SIGTERM)
	xdstest.Eventually(t, "the client at the first relay", func() error { return inStep(healthy) })
	o.Put(key, endpoints("greeter", green))
	c.reaches("green")
}

// inStep returns an error while the relay does not list the client, or lists a
// type of it that is not SYNCED.
func inStep(r *xdstest.Relay) error {
	type client struct {
		Node  string `json:"node"`
		Types []struct {
			Type  string `json:"type"`
			State string `json:"state"`
		} `json:"types"`
	}
	clients, err := xdstest.List[client](r, "/clients")
	if err != nil {
		return err
	}
	if len(clients) != 1 || clients[0].Node != node || len(clients[0].Types) != 4 {
		return fmt.Errorf("/clients: %+v, want one of node %s with four types", clients, node)
	}
	for _, typ := range clients[0].Types {
		if typ.State != "SYNCED" {
			return fmt.Errorf("%s is %s", typ.Type, typ.State)
		}
	}
	return nil
}

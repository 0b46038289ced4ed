package integration

import (
	"fmt"
	"net"
	"testing"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// replicas are two relays that have one name, as those behind a headless service have. They have
// one port and two addresses. gRPC's clients try the addresses in this order.
type replicas struct {
	target string // for gRPC
	first  *relay
	second *relay
}

// serveReplicas starts two relays in front of an origin. more is of the first one.
func serveReplicas(t *testing.T, origin string, more xdstest.Config) replicas {
	t.Helper()
	_, port, _ := net.SplitHostPort(xdstest.FreeAddress(t))
	const name = "relays.test"
	dns := xdstest.StartDNS(t, name)
	hosts := []string{"127.0.0.1", "127.0.0.2"}
	dns.Set(hosts...)
	at := func(i int) xdstest.Config {
		return xdstest.Config{"name": fmt.Sprint("relay-", i), "downstream.address": net.JoinHostPort(hosts[i], port)}
	}
	return replicas{
		target: fmt.Sprintf("dns://127.0.0.1:%d/%s", dns.Port, net.JoinHostPort(name, port)),
		first:  serve(t, origin, at(0).With(more)), second: serve(t, origin, at(1)),
	}
}

// Clients that a relay refuses go to the other relay, also if they know both by one name and the
// first one comes first in the DNS.
func TestRefusedClientsGoToAnotherReplica(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]xdstest.Config{
		"P53_no_origin": {"upstream.origins": xdstest.Origins(xdstest.FreeAddress(t))},
		"limit":         {"downstream.limits": map[string]any{"streams": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			o := origin(t, xdstest.Linear)
			o.Put("grpc", serviceAt("greeter", xdstest.StartGRPCBackend(t, "blue").Port)...)
			o.Put("edge", xdstest.Web(1)...)
			r := serveReplicas(t, o.Address, more)
			if name == "limit" {
				c := client(t, r.first.Address, fleet.ClientConfig{Node: node("only", "edge"), Behaviour: fleet.Envoy})
				waitFor(t, c, "what the origin has", hasAll(xdstest.Web(1)...))
			}
			for i := range 6 {
				c := client(t, r.target, fleet.ClientConfig{Node: node(fmt.Sprint("n-", i), "edge"), Variant: variants[i%2], Behaviour: fleet.Envoy})
				waitFor(t, c, "what the origin has", hasAll(xdstest.Web(1)...))
			}
			call(t, r.target, "greeter").reaches("blue")
		})
	}
}

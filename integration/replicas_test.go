package integration

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

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

// moves records when a client's streams end, and when the next ones begin.
type moves struct {
	mu    sync.Mutex
	ended time.Time
	took  []time.Duration
}

func (m *moves) onStream(_ *fleet.Client, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil:
		m.ended = time.Now()
	case !m.ended.IsZero():
		m.took = append(m.took, time.Since(m.ended))
	}
}

// While a relay drains, each of its clients is at the other relay once its stream has ended. It
// misses no change. Clients that start meanwhile use the other relay.
func TestDrainMovesClientsToAnotherReplica(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	blue, green := xdstest.StartGRPCBackend(t, "blue").Port, xdstest.StartGRPCBackend(t, "green").Port
	o.Put("grpc", serviceAt("greeter", blue)...)
	o.Put("edge", xdstest.Web(1)...)
	r := serveReplicas(t, o.Address, xdstest.Config{"downstream.drain": "3s"})
	const n = 10
	var clients []*fleet.Client
	var moved [n]moves
	for i := range n {
		clients = append(clients, client(t, r.target, fleet.ClientConfig{Node: node(fmt.Sprint("n-", i), "edge"), Variant: variants[i%2],
			Behaviour: fleet.Envoy, OnStream: moved[i].onStream}))
	}
	waitAll(t, clients, "what the origin has", hasAll(xdstest.Web(1)...))
	calls := call(t, r.target, "greeter")
	calls.reaches("blue")
	if got := len(r.first.clients()); got != n+1 {
		t.Fatalf("%d clients are at the first relay, want all %d", got, n+1)
	}

	r.first.Signal(syscall.SIGTERM)
	xdstest.Eventually(t, "the listener to be closed", func() error {
		c, err := net.Dial("tcp", r.first.Address)
		if err != nil {
			return nil
		}
		_ = c.Close() // it carried nothing
		return xdstest.ErrNotYet
	})
	clients = append(clients, client(t, r.target, fleet.ClientConfig{Node: node("late", "edge"), Behaviour: fleet.Envoy}))
	for version, exited := 2, false; !exited; version++ {
		o.Put("edge", xdstest.Web(version)...)
		waitAll(t, clients, "each change", hasAll(xdstest.Web(version)...))
		select {
		case <-r.first.Exited():
			exited = true
		default:
		}
	}
	o.Put("grpc", xdstest.Endpoints("greeter", green))
	calls.reaches("green")
	for i := range moved {
		moved[i].mu.Lock()
		if took := moved[i].took; len(took) != 1 {
			t.Errorf("client %d: after %v it had its next streams, want one", i, took)
		}
		moved[i].mu.Unlock()
	}
	if err := clients[n].LastError(); err != nil {
		t.Errorf("the client that started while the relay drained had an error: %v", err)
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

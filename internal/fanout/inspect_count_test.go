package fanout

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"xdsrelay/internal/fanout/rest/resttest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// Clients are counted by the state of each type.
func TestClientsAreCountedByState(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"))
	cc := r.dial()
	var nonces []string
	for range 4 {
		c := r.delta(cc)
		c.ask(xds.ClusterType)
		m, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		nonces = append(nonces, m.Nonce)
		switch len(nonces) {
		case 1, 2:
			c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce})
		case 3:
			c.must(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: m.TypeUrl, ResponseNonce: m.Nonce, ErrorDetail: &rpcstatus.Status{Code: 3, Message: "no"}})
		}
	}
	r.delta(cc).ask(xds.EndpointType, "e") // of which nothing is known
	want := map[string]float64{"synced": 2, "nacked": 1, "stale": 1, "not_sent": 0}
	r.eventually(func() bool {
		all := r.srv.Count()
		r.metrics.SetClientStates(all)
		for state, n := range want {
			if gauge(t, r.metrics, "xdsrelay_downstream_types", "CDS", state) != n {
				return false
			}
		}
		return gauge(t, r.metrics, "xdsrelay_downstream_types", "EDS", "not_sent") == 1
	})
	r.grpc.Stop()
	r.eventually(func() bool { return len(r.srv.all()) == 0 })
	r.metrics.SetClientStates(r.srv.Count())
	for state := range want {
		if n := gauge(t, r.metrics, "xdsrelay_downstream_types", "CDS", state); n != 0 {
			t.Errorf("%v clients are %s that are gone", n, state)
		}
	}
}

// Pollers are counted as well.
func TestPollersAreCountedByState(t *testing.T) {
	r := newREST(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.EndpointType, "a", "b"))
	c := r.HTTP(resttest.Protocols[0])
	r.Begin(xdstest.Context(t), c, xds.EndpointType, r.Response(r.Ask(c, xds.EndpointType, "", "a")).VersionInfo, "a")
	b := r.Response(r.Ask(c, xds.EndpointType, "", "b")).VersionInfo
	r.Begin(xdstest.Context(t), c, xds.EndpointType, "", "unknown")
	r.waiting(2)
	counts := func(want map[string]float64) {
		t.Helper()
		r.eventually(func() bool {
			r.metrics.SetClientStates(r.srv.Count())
			for state, n := range want {
				if gauge(t, r.metrics, "xdsrelay_downstream_types", "EDS", state) != n {
					return false
				}
			}
			return true
		})
	}
	counts(map[string]float64{"synced": 1, "stale": 1, "not_sent": 1, "nacked": 0})
	r.Nack(c, xds.EndpointType, b, "b")
	r.waiting(3)
	counts(map[string]float64{"synced": 1, "stale": 0, "not_sent": 1, "nacked": 1})
}

// gauge reads one of types by their state.
func gauge(t *testing.T, m *telemetry.Metrics, name, typ, state string) float64 {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, s := range f.Metric {
			if f.GetName() == name && s.Label[0].GetValue() == state && s.Label[1].GetValue() == typ {
				return s.Gauge.GetValue()
			}
		}
	}
	t.Fatalf("no %s{%s, %s}", name, typ, state)
	return 0
}

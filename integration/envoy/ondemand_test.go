package envoy

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ondemandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xdstest"
)

// onDemand is an HTTP connection manager with the on_demand filter.
func onDemand(routes string, source *corev3.ConfigSource, filter *ondemandv3.OnDemand) *hcmv3.HttpConnectionManager {
	m := xdstest.Manager(routes, source)
	m.HttpFilters = []*hcmv3.HttpFilter{{Name: "envoy.filters.http.on_demand",
		ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: xdstest.Pack(filter)}}, xdstest.RouterFilter()}
	return m
}

// virtualHost sends the requests for these domains to a cluster.
func virtualHost(name, cluster string, domains ...string) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: name, Domains: domains, Routes: []*routev3.Route{xdstest.RouteTo("/", cluster)}}
}

// Envoy asks for a virtual host when a request for its domain comes. It
// subscribes by an alias.
func TestOnDemandVirtualHosts(t *testing.T) {
	t.Parallel()
	compare(t, adsDelta, onDemandScene, onDemandHosts)
}

func onDemandHosts(t *testing.T, s *scene) *envoy {
	o := s.origin.Services.(*onDemandOrigin)
	o.put(staticCluster("blue", xdstest.StartHTTPBackend(t, "blue")), staticCluster("green", xdstest.StartHTTPBackend(t, "green")),
		xdstest.HTTPListener("in", onDemand("in", s.way.source, &ondemandv3.OnDemand{})),
		&routev3.RouteConfiguration{Name: "in", Vhds: &routev3.Vhds{ConfigSource: s.way.source}})
	// Envoy starts the listener when it has a first virtual host, and deletes a
	// virtual host whose own name is that of the deleted resource.
	o.set("in/always", virtualHost("in/always", "blue", "always.test"), false)
	o.putOnDemand("in/first", virtualHost("in/first", "blue", "a.test", "b.test"), "in/a.test", "in/b.test")
	e := s.envoy("envoy-1", nil)
	e.reaches("in", "a.test", "/", "blue")
	e.reaches("in", "b.test", "/", "blue")

	e.answersStatus("in", "unknown.test", "/", nil, http.StatusNotFound)
	o.putOnDemand("in/second", virtualHost("in/second", "green", "unknown.test"), "in/unknown.test")
	e.reaches("in", "unknown.test", "/", "green")

	o.putOnDemand("in/first", virtualHost("in/first", "green", "a.test", "b.test"), "in/a.test", "in/b.test")
	e.reaches("in", "a.test", "/", "green")
	e.reaches("in", "b.test", "/", "green")

	o.remove(vhds, "in/first")
	e.answersStatus("in", "a.test", "/", nil, http.StatusNotFound)
	o.putOnDemand("in/first", virtualHost("in/first", "blue", "a.test", "b.test"), "in/a.test", "in/b.test")
	e.reaches("in", "a.test", "/", "blue")
	return e
}

// status sends a request and returns the status of the answer and the backend.
func (e *envoy) status(listener, host, path string, header http.Header) (code int, backend string, err error) {
	address, err := e.listenerAddress(listener)
	if err != nil {
		return 0, "", err
	}
	client := newClient(nil)
	client.Timeout = 20 * time.Second // Envoy waits for the origin
	return send(e.t.Context(), client, "http://"+address+path, host, header)
}

// answersStatus waits until a request is answered with this status.
func (e *envoy) answersStatus(listener, host, path string, header http.Header, want int) {
	e.t.Helper()
	xdstest.Eventually(e.t, fmt.Sprintf("%s: %s%s through %s", e.node, host, path, listener), func() error {
		code, _, err := e.status(listener, host, path, header)
		if err == nil && code != want {
			err = fmt.Errorf("status %d, want %d", code, want)
		}
		return err
	})
}

// byHeader is a route configuration that takes the cluster from a header.
func byHeader(name string) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{
				ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: "x-cluster"}}}}}}}}
}

// listens waits until a listener accepts connections.
func (e *envoy) listens(listener string) {
	e.t.Helper()
	xdstest.Eventually(e.t, "the listener "+listener, func() error {
		address, err := e.listenerAddress(listener)
		if err != nil {
			return err
		}
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// reachesCluster sends one request for a cluster, which has to be answered by
// this backend.
func (e *envoy) reachesCluster(listener, cluster, backend string) {
	e.t.Helper()
	code, got, err := e.status(listener, "", "/", http.Header{"X-Cluster": {cluster}})
	if err != nil || code != http.StatusOK || got != backend {
		e.t.Errorf("%s: cluster %s: status %d from %q, error %v; want %s", e.node, cluster, code, got, err, backend)
	}
}

// Envoy asks for a cluster when a request for it comes, over ADS or over a
// stream of its own. It may have a wildcard of clusters beside it.
func TestOnDemandClusters(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"ads", "own-stream"} {
		for _, wildcard := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/wildcard=%v", stream, wildcard), func(t *testing.T) {
				t.Parallel()
				compare(t, adsDelta, onDemandScene, func(t *testing.T, s *scene) *envoy {
					return onDemandClusters(t, s, stream, wildcard)
				},
					difference{item: `stat cluster_manager\.cds\.config_reload`, random: true,
						reason: "both of Envoy's subscriptions get a cluster, and the one that Envoy runs first counts the reload"},
					difference{item: `stat cluster_manager\.odcds\.update_attempt`, random: true,
						reason: "the test repeats its request for the cluster that comes later"})
			})
		}
	}
}

func onDemandClusters(t *testing.T, s *scene, stream string, wildcard bool) *envoy {
	source := s.way.source
	if stream == "own-stream" {
		source = overTypes(corev3.ApiConfigSource_DELTA_GRPC)
	}
	blue, green := xdstest.StartHTTPBackend(t, "blue"), xdstest.StartHTTPBackend(t, "green")
	o := s.origin.Services.(*onDemandOrigin)
	filter := &ondemandv3.OnDemand{Odcds: &ondemandv3.OnDemandCds{Source: source, Timeout: durationpb.New(10 * time.Second)}}
	o.put(xdstest.HTTPListener("in", onDemand("in", s.way.source, filter)), byHeader("in"), staticCluster("always", blue))
	o.putOnDemand("static", staticCluster("static", blue))
	o.putOnDemand("with-eds", cluster("with-eds", s.way.source))
	o.put(endpoints("with-eds", green))
	e := s.envoy("envoy-1", func(b bootstrap) {
		if !wildcard {
			delete(b.at("dynamic_resources"), "cds_config")
		}
	})
	if wildcard {
		e.waitCluster(staticCluster("always", blue))
	}
	e.listens("in")
	if n := o.timesAsked(cds, "static"); n != 0 {
		t.Errorf("the origin was asked for the cluster %d times before a request for it", n)
	}
	e.reachesCluster("in", "static", "blue")
	e.reachesCluster("in", "with-eds", "green")
	e.answersStatus("in", "", "/", http.Header{"X-Cluster": {"later"}}, http.StatusServiceUnavailable)
	o.putOnDemand("later", staticCluster("later", green))
	e.answersStatus("in", "", "/", http.Header{"X-Cluster": {"later"}}, http.StatusOK)
	e.reachesCluster("in", "later", "green")
	e.reachesCluster("in", "static", "blue")

	o.putOnDemand("static", staticCluster("static", green)) // changes
	e.waitCluster(staticCluster("static", green))
	if wildcard { // goes on beside the names
		o.put(staticCluster("more", blue))
		e.waitCluster(staticCluster("more", blue))
		o.remove(cds, "always")
		e.waitGone("always")
	}
	e.reachesCluster("in", "static", "green")
	o.remove(cds, "static")
	e.waitGone("static")
	e.reachesCluster("in", "with-eds", "green")
	return e
}

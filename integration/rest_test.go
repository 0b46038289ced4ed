package integration

import (
	"net/http"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/xdstest"
)

// An origin's resources and changes reach Envoys that poll, in both protocols. They share their key
// and its upstream stream with gRPC clients.
func TestP70_Flow(t *testing.T) {
	t.Parallel()
	eachOrigin(t, func(t *testing.T, upstream, kind string) {
		o := origin(t, kind)
		o.Put("edge", xdstest.Web(1)...)
		r := serve(t, o.Address, withREST(upstream, "10s"))
		var polling []*restEnvoy
		for _, p := range protocols {
			polling = append(polling, newRESTEnvoy(t, r.rest(), p, node("rest-"+p, "edge")))
		}
		streaming := envoys(t, r.Address, "edge")
		everyone := func(what string, resources ...types.Resource) {
			t.Helper()
			for _, e := range polling {
				e.wait(what, resources...)
			}
			waitAll(t, streaming, what, hasAll(resources...))
		}
		everyone("what the origin has", xdstest.Web(1)...)
		o.Put("edge", xdstest.Web(2)...)
		everyone("a change", xdstest.Web(2)...)
		o.Put("edge", xdstest.Cluster("api", 1), xdstest.Endpoints("api", 9000))
		everyone("an addition", append(xdstest.Web(2), xdstest.Cluster("api", 1), xdstest.Endpoints("api", 9000))...)
		o.Remove("edge", resource.ClusterType, "api")
		everyone("a removal", xdstest.Web(2)...)

		if open, ever := o.Streams(); open != 1 || ever != 1 {
			t.Errorf("the origin has %d streams and had %d", open, ever)
		}
		for _, e := range polling {
			for status, n := range e.replies() {
				if status != http.StatusOK && status != http.StatusNotModified {
					t.Errorf("%d replies of status %d", n, status)
				}
			}
			found := 0
			for _, c := range r.clients() {
				if c.Node == e.node.Id {
					found++
				}
			}
			if found < 4 { // clusters, listeners, routes, and endpoints for each cluster
				t.Errorf("/clients shows %s %d times", e.node.Id, found)
			}
		}
		if n := r.Metric("downstream_streams", "variant", "rest"); n < 8 {
			t.Errorf("metric: %v pollers", n)
		}
		if n := r.Metric("downstream_responses_total", "variant", "rest", "type", "CDS"); n < 8 {
			t.Errorf("metric: %v responses", n)
		}
	})
}

// While the origin is away, polls for held resources work as before. For a key without held
// resources polls are refused, including waiting ones.
func TestP72_OriginAway(t *testing.T) {
	t.Parallel()
	for _, upstream := range upstreams {
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			o := origin(t, xdstest.Linear)
			o.Put("edge", xdstest.Web(1)...)
			r := serve(t, o.Address, withREST(upstream, "10m"))
			c := httpClient(t, "h2c")
			r.ask(c, node("n", "edge"), resource.ClusterType, "")
			o.Stop()
			wantRefused(t, r.ask(c, node("n", "nothing-held"), resource.ClusterType, ""), http.StatusServiceUnavailable, "origin_unreachable")
			got := r.ask(c, node("n", "nothing-held"), resource.RouteType, "", "in")
			wantRefused(t, got, http.StatusServiceUnavailable, "origin_unreachable")
			if got.header.Get("Retry-After") == "" {
				t.Error("the reply lacks Retry-After")
			}
			if got := r.ask(c, node("m", "edge"), resource.ClusterType, ""); got.status != http.StatusOK {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
}

package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/xdstest"
)

// An origin's resources and changes reach Envoys that poll, in both protocols. They share their key
// and its upstream stream with gRPC clients.
func TestP70_Flow(t *testing.T) {
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

// dropped reports whether the origin received a subscription without one of the names.
func dropped(o *xdstest.Origin, typ string, name string) bool {
	asked := o.Requests(func(r xdstest.Request) bool { return r.Type == typ && r.Asks })
	last := asked[len(asked)-1]
	if last.Delta {
		return slices.ContainsFunc(asked, func(r xdstest.Request) bool { return slices.Contains(r.Unsubscribe, name) })
	}
	return !slices.Contains(last.Names, name)
}

// A poll's interest stays for twice long_poll, and then lingers as any other does.
func TestP70_InterestStays(t *testing.T) {
	for _, upstream := range upstreams {
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			o := origin(t, xdstest.Linear)
			o.Put("edge", xdstest.Endpoints("a", 1), xdstest.Endpoints("b", 2))
			s := withREST(upstream, "750ms")
			s["upstream.linger"] = "1ms"
			r := serve(t, o.Address, s)
			// Another client keeps the key in use.
			other := xdstest.OpenStream(t, r.Address, xdstest.DeltaMethod)
			other.Ask(node("other", "edge"), resource.EndpointType, "b")
			polled := time.Now()
			if got := r.ask(httpClient(t, "http1"), node("n", "edge"), resource.EndpointType, "", "a"); got.status != http.StatusOK {
				t.Fatalf("%d %s", got.status, got.body)
			}
			xdstest.Eventually(t, "the unsubscription of names without polls", xdstest.Holds(func() bool { return dropped(o, resource.EndpointType, "a") }))
			if after := time.Since(polled); after < 1500*time.Millisecond {
				t.Errorf("given up after %s", after)
			}
		})
	}
}

// Held polls end within the drain time, with 304 for clients that are up to date. Then the relay
// ends.
func TestP71_Drain(t *testing.T) {
	for _, upstream := range upstreams {
		t.Run(upstream, func(t *testing.T) {
			t.Parallel()
			o := origin(t, xdstest.Linear)
			o.Put("edge", xdstest.Web(1)...)
			r := serve(t, o.Address, withREST(upstream, "10m"))
			base := r.rest()
			var done []chan *polled
			for i := range 20 {
				c, me := httpClient(t, protocols[i%2]), node(fmt.Sprint("n-", i), "edge")
				version := r.ask(c, me, resource.ClusterType, "").answer.GetVersionInfo()
				out := make(chan *polled, 1)
				done = append(done, out)
				go func() {
					got, err := poll(xdstest.Context(t), c, base, resource.ClusterType, &discoveryv3.DiscoveryRequest{Node: me, VersionInfo: version})
					if err != nil {
						got = &polled{body: []byte(err.Error())}
					}
					out <- got
				}()
			}
			r.WaitMetric(20, "downstream_acks_total", "type", "CDS")
			r.Stop()
			for _, out := range done {
				if got := <-out; got.status != http.StatusNotModified {
					t.Errorf("%d %s", got.status, got.body)
				}
			}
		})
	}
}

// While the origin is away, polls for held resources work as before. For a key without held
// resources polls are refused, including waiting ones.
func TestP72_OriginAway(t *testing.T) {
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

// Polls are refused as configured: nodes without a key, Secrets, identity rules of listeners,
// limits.
func TestP72_Refusals(t *testing.T) {
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	s := withREST("delta", "10m")
	s["aggregation.rules"] = []map[string]any{{"match": `node.cluster == "edge"`, "key": "node.cluster"}}
	s["downstream.limits"] = map[string]any{"streams_per_peer": 2, "request_bytes": 10000}
	delete(s, "downstream.address")
	s["downstream.listeners"] = []map[string]any{
		{"address": "127.0.0.1:0", "secrets": "allow"},
		{"address": "127.0.0.1:0", "identity": `node.id != "stranger"`},
	}
	q := xdstest.QuickConfig()
	delete(q, "downstream.address")
	for key, v := range s {
		q[key] = v
	}
	q["upstream.origins"] = xdstest.Origins(o.Address)
	r := start(t, "", nil, "serve", "--config", q.WriteFile(t))
	c := httpClient(t, "h2c")
	wantRefused(t, r.ask(c, node("n", "core"), resource.ClusterType, ""), http.StatusForbidden, "unmapped")
	wantRefused(t, r.ask(c, node("n", "edge"), resource.SecretType, "", "s"), http.StatusForbidden, "secrets")
	wantRefused(t, r.ask(c, node("stranger", "edge"), resource.ClusterType, ""), http.StatusForbidden, "identity")
	wantRefused(t, r.ask(c, nil, resource.ClusterType, ""), http.StatusBadRequest, "node_missing")
	wantRefused(t, r.ask(c, node(fmt.Sprintf("%010000d", 1), "edge"), resource.ClusterType, ""), http.StatusRequestEntityTooLarge, "request_bytes")

	ctx, cancel := context.WithCancel(xdstest.Context(t))
	done := make(chan error, 2)
	base := r.rest()
	for i := range cap(done) {
		me := node(fmt.Sprint("n-", i), "edge")
		version := r.ask(c, me, resource.ClusterType, "").answer.GetVersionInfo()
		go func() {
			_, err := poll(ctx, c, base, resource.ClusterType, &discoveryv3.DiscoveryRequest{Node: me, VersionInfo: version})
			done <- err
		}()
		r.WaitMetric(float64(i+1), "downstream_acks_total", "type", "CDS") // it is held
	}
	wantRefused(t, r.ask(c, node("n", "edge"), resource.ClusterType, ""), http.StatusTooManyRequests, "streams_per_peer")
	cancel()
	for range cap(done) {
		if err := <-done; err == nil {
			t.Error("a held poll was answered")
		}
	}
	xdstest.Eventually(t, "room again", func() error {
		if got := r.ask(c, node("n", "edge"), resource.ClusterType, ""); got.status != http.StatusOK {
			return xdstest.ErrNotYet
		}
		return nil
	})
}

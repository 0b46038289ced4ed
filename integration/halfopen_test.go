package integration

import (
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"xdsrelay/internal/fleet"
	"xdsrelay/internal/xdstest"
)

// P53, P54, P56: connections to origins may be open and deliver nothing. The timeouts are constant:
// a gRPC client's keepalive asks at most every 10 s, and with another origin connecting takes at
// most 5 s. So all cases wait at the same time.
func TestP56_OriginsFromWhichNothingComes(t *testing.T) {
	t.Parallel()
	halfOpen, hanging := halfOpenOrigins(t), hangingOrigins(t)
	halfOpen()
	hanging()
}

// beside is a second origin, with resources that differ from the first.
func beside(t *testing.T) (o *xdstest.Origin, has func(c *fleet.Client) bool) {
	o = origin(t, xdstest.Linear)
	all := append(xdstest.Web(1), xdstest.Cluster("second", 1))
	o.Put("edge", append(all, xdstest.Endpoints("second", 1))...)
	return o, hasAll(all...)
}

// halfOpenOrigins: keepalive finds a dead connection that was not closed. The stream is reopened
// (P54), or opened at the next origin (P56). No client stream ends (P53), and changes made
// meanwhile arrive.
func halfOpenOrigins(t *testing.T) (finish func()) {
	keepalive := map[string]any{"time": "1s", "timeout": "200ms"}
	var alone, backed []*troubled
	var seconds func(c *fleet.Client) bool
	for _, v := range variants {
		alone = append(alone, newTroubled(t, v, false, xdstest.Config{"upstream.keepalive": keepalive}))
		var second *xdstest.Origin
		second, seconds = beside(t)
		backed = append(backed, newTroubled(t, v, false, xdstest.Config{"upstream.keepalive": keepalive, "second": second.Address}))
	}
	for _, w := range backed {
		w.wire.SetTarget(xdstest.FreeAddress(t))
	}
	for _, w := range append(alone, backed...) {
		w.wire.HangOpen()
		w.good.Put("edge", xdstest.Web(2)...)
		late := w.come("late") // before keepalive finds it
		waitAll(t, late, "what is held", hasAll(xdstest.Web(1)...))
		w.clients = append(w.clients, late...)
	}
	return func() {
		for _, w := range alone {
			waitAll(t, w.clients, "what changed meanwhile", hasAll(xdstest.Web(2)...))
			if n := w.Metric("upstream_reconnects_total", "reason", "ended"); n != 1 {
				t.Errorf("%v streams ended", n)
			}
			oneStream(t, w.clients...)
		}
		for _, w := range backed {
			waitAll(t, w.clients, "what the second origin has", seconds)
			w.well()
			waitAll(t, w.clients, "what the first origin has", all(hasAll(xdstest.Web(2)...), hasNot(resource.ClusterType, "second")))
			oneStream(t, w.clients...)
		}
	}
}

// hangingOrigins: an origin accepts connections and sends nothing, or nothing in the TLS handshake.
// The next origin takes over (P56).
func hangingOrigins(t *testing.T) (finish func()) {
	var fixtures []*troubled
	var seconds func(c *fleet.Client) bool
	for _, secured := range []bool{false, true} {
		for _, v := range variants {
			var second *xdstest.Origin
			second, seconds = beside(t)
			w := newTroubled(t, v, secured, xdstest.Config{"second": second.Address})
			w.replaced(xdstest.StartDeaf(t))
			w.clients = append(w.clients, w.come("late")...)
			fixtures = append(fixtures, w)
		}
	}
	return func() {
		for _, w := range fixtures {
			waitAll(t, w.clients, "what the second origin has", seconds)
			w.good.Put("edge", xdstest.Web(2)...)
			w.well()
			waitAll(t, w.clients, "what the first origin has", all(hasAll(xdstest.Web(2)...), hasNot(resource.ClusterType, "second")))
			oneStream(t, w.clients...)
		}
	}
}

// The relay's keepalive finds a client's dead connection that was not closed. Its stream is no
// longer counted. Other clients are not affected. The client reconnects and receives the current
// state.
func TestHalfOpenDownstream(t *testing.T) {
	t.Parallel()
	o := origin(t, xdstest.Linear)
	o.Put("edge", xdstest.Web(1)...)
	r := serve(t, o.Address, xdstest.Config{"downstream.keepalive": map[string]any{"time": "1s", "timeout": "200ms"}})
	honest := envoys(t, r.Address, "edge")
	p := xdstest.StartProxy(t, r.Address)
	var dead []*fleet.Client
	for _, v := range variants {
		dead = append(dead, client(t, p.Address, fleet.ClientConfig{Node: node("dead-"+v.String(), "edge"), Variant: v, Behaviour: fleet.Envoy}))
	}
	waitAll(t, append(dead, honest...), "what the origin has", hasAll(xdstest.Web(1)...))
	p.HangOpen()
	o.Put("edge", xdstest.Web(2)...)
	waitAll(t, honest, "a change", hasAll(xdstest.Web(2)...))
	for _, v := range variants {
		xdstest.Eventually(t, "the end of its stream", xdstest.Holds(func() bool { return r.Metric("downstream_streams", "variant", v.String()) == 1 }))
	}
	waitAll(t, dead, "what it had", hasAll(xdstest.Web(1)...))
	p.Cut() // now the clients notice too
	waitAll(t, dead, "what changed meanwhile", hasAll(xdstest.Web(2)...))
	for _, c := range dead {
		if s := c.Counters().Streams; s != 2 {
			t.Errorf("%s needed %d streams", c, s)
		}
	}
	oneStream(t, honest...)
}

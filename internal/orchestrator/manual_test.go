package orchestrator

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// manual makes a group without a goroutine: the test calls step. It has the
// type typ.
func (w *registryFixture) manual(typ xds.TypeURL) (*Group, *groupType) {
	w.t.Helper()
	g := newGroup(w.reg, xds.NewKey("manual"), w.node(&corev3.Node{Id: "manual", Cluster: "manual"}), w.node(&corev3.Node{Id: "manual", Cluster: "manual"}))
	g.metrics = w.reg.opts.Metrics.Key(g.key)
	t := g.addType(typ)
	t.audience.Join() // it never leaves
	return g, t
}

// subscriber makes a subscriber of a group that is unknown to the registry.
func (w *registryFixture) subscriber(g *Group, typ xds.TypeURL) (*testClient, *clientType) {
	c := &testClient{w: w}
	joined := &client{Info: subscriber.Info{End: c.End}, registry: w.reg}
	c.joined = joined
	m := &clientType{client: joined, group: g, typ: typ, node: g.node, waker: c, sub: snapshot.Nothing}
	c.Subscriber = m
	return c, m
}

func nack(version, message string) subscriber.Nack {
	return subscriber.Nack{Version: version, Code: 3, Message: message, Node: "node-1"}
}

// refusalOf returns err as a refusal, and fails the test if it is none.
func refusalOf(t testing.TB, err error) *refusal.Refusal {
	t.Helper()
	r, ok := err.(*refusal.Refusal)
	if !ok {
		t.Fatalf("%v is no refusal", err)
	}
	return r
}

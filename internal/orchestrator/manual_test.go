package orchestrator

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/fanout"
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

// member makes a member of a group that is unknown to the registry.
func (w *registryFixture) member(g *Group, typ xds.TypeURL) (*client, *member) {
	c := &client{w: w}
	m := &member{group: g, typ: typ, node: g.node, waker: c, sub: snapshot.Nothing}
	c.Member = m
	return c, m
}

func nack(version, message string) fanout.Nack {
	return fanout.Nack{Version: version, Code: 3, Message: message, Node: "node-1"}
}

// refusalOf returns err as a refusal, and fails the test if it is none.
func refusalOf(t testing.TB, err error) *fanout.Refusal {
	t.Helper()
	r, ok := err.(*fanout.Refusal)
	if !ok {
		t.Fatalf("%v is no refusal", err)
	}
	return r
}

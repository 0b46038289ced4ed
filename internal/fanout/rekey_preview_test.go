package fanout

import (
	"errors"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// A preview of rules says, type by type, what Rekey then does by them. The preview itself disturbs
// no client.
func TestP5_PreviewMatchesRekey(t *testing.T) {
	r := newServerFixture(t, nil)
	publishAll(r, "a", "edge", "other", "gone")
	open := func(id, cluster string) *client {
		c := r.delta(nil)
		c.must(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: id, Cluster: cluster}, TypeUrl: string(xds.ClusterType)})
		c.want("a ")
		c.ask(xds.EndpointType, "a")
		c.want("a ")
		return c
	}
	clients := map[string]*client{"stays": open("stays", "other"), "moves": open("moves", "edge"), "goes": open("goes", "gone")}
	rules := func(n *corev3.Node, typ xds.TypeURL) (string, error) {
		switch {
		case n.Cluster == "gone":
			return "", nil
		case n.Cluster == "edge" && typ == xds.EndpointType:
			return "moved", nil
		}
		return n.Cluster, nil
	}
	other := &subscribertest.Joiner{}
	other.SetRules(rules)
	keyOf := func(n *xds.Node, p expr.Peer, typ xds.TypeURL) (xds.Key, error) {
		key, err := other.KeyOf(n, p, typ)
		if err != nil {
			err = errors.New("no rule") // as rules have it, which know no refusals
		}
		return key, err
	}
	got := map[string]RekeyPreview{}
	last := uint64(0)
	for m := range r.srv.PreviewRekey(0, keyOf) {
		if m.Stream <= last || m.Peer == "" || m.Identity != "" {
			t.Errorf("%+v after %d", m, last)
		}
		last = m.Stream
		got[m.Node] = m
	}
	if m := got["stays"]; m.Stream == 0 || len(m.Changes) != 0 {
		t.Errorf("%+v", m)
	}
	if m := got["moves"]; len(m.Changes) != 1 || m.Changes[0] != (subscriber.Change{Type: xds.EndpointType, From: xds.NewKey("edge"), To: xds.NewKey("moved")}) {
		t.Errorf("%+v", m)
	}
	if m := got["goes"]; len(m.Changes) != 2 || !m.Changes[0].To.IsZero() || m.Changes[1].Refused == nil {
		t.Errorf("%+v", m)
	}
	for m := range r.srv.PreviewRekey(last-1, keyOf) {
		if m.Stream != last {
			t.Errorf("stream %d comes after %d", m.Stream, last-1)
		}
	}
	publishAll(r, "b", "edge", "other", "gone")
	for name, c := range clients {
		if said(c.recv()) != "b " {
			t.Errorf("%s was disturbed", name)
		}
	}
	r.rekeyed(0, rules)
	r.wantEnd(clients["moves"], codes.Unavailable, telemetry.KeyChanged)
	r.wantEnd(clients["goes"], codes.PermissionDenied, telemetry.Unmapped)
	publishAll(r, "c", "other")
	clients["stays"].want("c ")
}

// Pollers are in the preview as well.
func TestP5_PreviewOfPolls(t *testing.T) {
	r := newREST(t, nil)
	publishAll(r.serverFixture, "a", "edge")
	r.Response(r.Ask(r.HTTP("http1"), xds.ClusterType, ""))
	other := &subscribertest.Joiner{}
	other.SetRules(moved)
	n := 0
	for m := range r.srv.PreviewRekey(0, other.KeyOf) {
		n++
		if m.Node != "n" || len(m.Changes) != 1 || m.Changes[0].To != xds.NewKey("moved") {
			t.Errorf("%+v", m)
		}
	}
	if n != 1 {
		t.Errorf("%d clients", n)
	}
}

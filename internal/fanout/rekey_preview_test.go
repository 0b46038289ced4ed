package fanout

import (
	"errors"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"

	"xdsrelay/config"
	"xdsrelay/internal/expr"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/member/membertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
)

// A preview of rules says, type by type, what Rekey then does by them. The preview itself disturbs
// no client.
func TestP5_PreviewIsWhatRekeyDoes(t *testing.T) {
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
	other := &membertest.Source{}
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
	if m := got["moves"]; len(m.Changes) != 1 || m.Changes[0] != (Change{Type: xds.EndpointType, From: xds.NewKey("edge"), To: xds.NewKey("moved")}) {
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
	other := &membertest.Source{}
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

// CountRekey counts the clients that other rules or another identity rule would end, once each. It
// disturbs no client.
func TestP5_CountRekey(t *testing.T) {
	r := newServerFixture(t, nil)
	policy, another := &listener.Policy{Key: "downstream", Secrets: config.SecretsAllow}, &listener.Policy{Key: "other"}
	r.addr = r.listen(policy)
	publishAll(r, "a", "edge", "other")
	clients := []*client{r.opened("edge"), r.opened("edge"), r.opened("other")}
	clients[0].ask(xds.EndpointType, "a")
	clients[0].want("a ")
	r.delta(nil) // has sent no request yet
	same := func(n *xds.Node, p expr.Peer, typ xds.TypeURL) (xds.Key, error) { return r.groups.KeyOf(n, p, typ) }
	edgeMoves := func(n *xds.Node, p expr.Peer, typ xds.TypeURL) (xds.Key, error) {
		if key, err := same(n, p, typ); err != nil || key != xds.NewKey("edge") {
			return key, err
		}
		return xds.NewKey("moved"), nil
	}
	none := func(*xds.Node, expr.Peer, xds.TypeURL) (xds.Key, error) { return xds.Key{}, errors.New("no rule") }
	only := func(p *listener.Policy) []PolicyChange {
		return []PolicyChange{{Policy: p, Identity: mustIdentity(t, `node.cluster == "edge"`), Secrets: config.SecretsAllow}}
	}
	for _, c := range []struct {
		what     string
		policies []PolicyChange
		keyOf    KeyOf
		want     int
	}{
		{"the same rules", nil, same, 0},
		{"another key", nil, edgeMoves, 2},
		{"no key", nil, none, 3},
		{"another identity rule", only(policy), same, 1},
		{"that of another listener", only(another), same, 0},
		{"both", only(policy), edgeMoves, 3},
	} {
		if ended, of := r.srv.CountRekey(c.policies, c.keyOf); ended != c.want || of < 3 {
			t.Errorf("%s: %d of %d, want %d", c.what, ended, of, c.want)
		}
	}
	publishAll(r, "b", "edge", "other")
	for _, c := range clients {
		c.want("b ")
	}
}

// REST clients are counted as well.
func TestP5_CountRekeyOfPolls(t *testing.T) {
	r := newREST(t, nil)
	publishAll(r.serverFixture, "a", "edge")
	r.Response(r.Ask(r.HTTP("http1"), xds.ClusterType, ""))
	other := &membertest.Source{}
	other.SetRules(moved)
	if ended, of := r.srv.CountRekey(nil, other.KeyOf); ended != 1 || of != 1 {
		t.Errorf("%d of %d", ended, of)
	}
	if ended, of := r.srv.CountRekey(nil, r.groups.KeyOf); ended != 0 || of != 1 {
		t.Errorf("%d of %d by the same rules", ended, of)
	}
}

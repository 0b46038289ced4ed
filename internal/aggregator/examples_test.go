package aggregator

import (
	"os"
	"path/filepath"
	"testing"

	"xdsrelay/internal/expr"
	"xdsrelay/internal/xds"
)

// The examples of the repository compile and give the documented keys.
func TestExamples(t *testing.T) {
	const dir = "../../config/rules"
	tried := map[string]bool{}
	for _, c := range []struct {
		file, node string
		peer       expr.Peer
		typ        xds.TypeURL
		want       string
	}{
		{"by-zone.yaml", edge, expr.Peer{}, xds.EndpointType, "endpoints/edge-eu/eu-1"},
		{"by-zone.yaml", edge, expr.Peer{}, xds.ClusterType, "cluster/edge-eu"},
		{"by-zone.yaml", `{"cluster": "c"}`, expr.Peer{}, xds.EndpointType, "cluster/c"},
		{"by-tenant.yaml", edge, expr.Peer{}, "", "canary/a/edge-eu"},
		{"by-tenant.yaml", `{"cluster": "c", "metadata": {"tenant": "b"}}`, expr.Peer{}, "", "tenant/b/c"},
		{"by-tenant.yaml", `{"cluster": "c"}`, expr.Peer{}, "",
			"the aggregation rule that matches this node gives no key; tried: rules[1]: match, but its key failed: key[1]: no such key: tenant"},
		{"by-identity.yaml", edge, expr.Peer{URISANs: []string{"spiffe://corp/ns/shop/sa/cart"}}, "", "identity/shop/cart/envoy"},
		{"by-identity.yaml", `{"user_agent_name": "gRPC Go"}`, expr.Peer{URISANs: []string{"spiffe://corp/ns/shop/sa/cart"}}, "", "identity/shop/cart/grpc"},
		{"by-identity.yaml", edge, expr.Peer{}, "", "no aggregation rule matches this node; tried: rules[0]: no match"},
		{"sidecars.yaml", `{"id": "router~10.0.0.1~gw-1.edge~edge.svc", "cluster": "gw.edge"}`, expr.Peer{}, "", "router/envoy/edge/gw.edge"},
		{"sidecars.yaml", `{"id": "sidecar~10.0.0.1~cart.v1-1.shop~shop.svc", "cluster": "cart"}`, expr.Peer{}, "", "sidecar/envoy/shop/cart"},
		{"sidecars.yaml", `{"id": "router~10.0.0.1~gw-1.edge~edge.svc", "cluster": "gw", "metadata": {"NAMESPACE": "other"}}`, expr.Peer{}, "", "router/envoy/other/gw"},
		{"sidecars.yaml", `{"id": "ztunnel~10.0.0.1~ztunnel-1.istio-system~istio-system.svc", "metadata": {"CLUSTER_ID": "c1"}}`, expr.Peer{}, "", "ztunnel/c1"},
		{"sidecars.yaml", `{"id": "waypoint~10.0.0.1~wp-1.shop~shop.svc", "cluster": "wp.shop"}`, expr.Peer{}, "", "waypoint/envoy/shop/wp.shop"},
		{"sidecars.yaml", `{"id": "sidecar~10.0.0.1~cart-1.shop~shop.svc", "metadata": {"LABELS": {"app": "cart", "version": "v2"}}}`, expr.Peer{}, "", "sidecar/envoy/shop/cart/v2"},
		{"sidecars.yaml", `{"id": "sidecar~10.0.0.1~cart-1.shop~shop.svc", "metadata": {"LABELS": {"app": "cart"}}}`, expr.Peer{}, "", "sidecar/envoy/shop/cart/none"},
		{"sidecars.yaml", `{"id": "sidecar~10.0.0.1~cart-1.shop~shop.svc", "cluster": "cart"}`, expr.Peer{}, "", "sidecar/envoy/shop/cart"},
		{"sidecars.yaml", `{"id": "sidecar~10.0.0.1~cart-2.shop~shop.svc", "metadata": {"GENERATOR": "grpc", "LABELS": {"app": "cart", "version": "v2"}}}`, expr.Peer{}, "", "sidecar/grpc/shop/cart/v2"},
		{"sidecars.yaml", `{"id": "sidecar~10.0.0.1~cart-2.shop~shop.svc", "cluster": "cart", "metadata": {"GENERATOR": "grpc"}}`, expr.Peer{}, "",
			"sidecar/grpc/shop/cart"},
		{"xds-relay.yaml", `{"cluster": "web-blue", "locality": {"zone": "eu-1"}, "metadata": {"canary": true}}`, expr.Peer{}, xds.ListenerType, "web/canary/eu-1/lds"},
		{"xds-relay.yaml", `{"cluster": "web-green"}`, expr.Peer{}, xds.ClusterType, "web/stable/@/cds"},
		{"xds-relay.yaml", `{"cluster": "web-green"}`, expr.Peer{}, xds.SecretType, "web/stable"},
	} {
		tried[c.file] = true
		file, err := filepath.Abs(filepath.Join(dir, c.file))
		if err != nil {
			t.Fatal(err)
		}
		r := compile(t, "  file: "+file+"\n")
		if w := r.Warnings(); len(w) > 0 {
			t.Errorf("%s: %v", c.file, w)
		}
		k, err := r.Key(node(t, c.node), c.peer, c.typ)
		got := k.String()
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.file, c.node, got, c.want)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !tried[f.Name()] {
			t.Errorf("%s is not tried", f.Name())
		}
	}
}

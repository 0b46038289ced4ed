package envoy

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"xdsrelay/internal/xdstest"
)

// An origin sends 800 clusters in four responses of 2 MB. Envoy with google_grpc receives 4 MiB at
// most. It gets all clusters, also if the relay has them all when it connects.
func TestP38_GoogleGRPC(t *testing.T) {
	t.Parallel()
	xdstest.PythonEnv(t) // skips before anything is built
	const responses, each = 4, 200
	pad, err := structpb.NewStruct(map[string]any{"pad": strings.Repeat("x", 10<<10)})
	if err != nil {
		t.Fatal(err)
	}
	o := xdstest.StartScriptedOrigin(t)
	r := xdstest.StartRelay(t, xdstest.QuickConfig().With(xdstest.Config{
		"upstream.origins": xdstest.Origins(o.Address), "upstream.variant": "delta"}))
	start := func(node string) *envoy {
		b := adsDelta.bootstrap(t, r.Address)
		b.at("dynamic_resources", "ads_config")["grpc_services"] = []any{bootstrap{
			"google_grpc": bootstrap{"target_uri": r.Address, "stat_prefix": "relay"}}}
		return startEnvoy(t, node, "edge", b)
	}
	first := start("first")
	o.WaitType(cds)
	for i := range responses {
		var clusters []proto.Message
		for j := range each {
			c := staticCluster(fmt.Sprintf("c%d-%d", i, j))
			c.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"test": pad}}
			clusters = append(clusters, c)
		}
		o.Respond(cds, fmt.Sprint("n", i), clusters...)
	}
	o.WaitType(lds)
	o.Respond(lds, "none")
	const all = responses*each + 1 // and the static cluster
	first.waitStat("cluster_manager.active_clusters", all)
	second := start("second")
	second.waitStat("cluster_manager.active_clusters", all)
	for _, e := range []*envoy{first, second} {
		e.mustBeClean()
		if n := e.stat("cluster_manager.cds.update_failure"); n != 0 {
			t.Errorf("the stream of %s ended %d times", e.node, n)
		}
	}
}

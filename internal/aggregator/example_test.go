package aggregator_test

import (
	"fmt"

	"xdsrelay/internal/aggregator"
	"xdsrelay/internal/xds"
)

// The first rule that matches a node gives its key.
func ExampleCompileText() {
	rules, err := aggregator.CompileText("rules.yaml", []byte(`
- match: node.cluster.startsWith("edge-")
  key: [node.cluster, node.locality.zone]
- key: node.cluster
`), "reject")
	if err != nil {
		fmt.Println(err)
		return
	}
	var nodes xds.NodeTable
	for _, text := range []string{`{"cluster": "edge-eu", "locality": {"zone": "eu-1"}}`, `{"cluster": "shop"}`} {
		in, err := aggregator.ParseNode([]byte(text), &nodes)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(rules.Key(in.Node, in.Peer, xds.ClusterType))
	}
	// Output:
	// edge-eu/eu-1 <nil>
	// shop <nil>
}

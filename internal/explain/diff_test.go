package explain

import (
	"strings"
	"testing"
)

// The table is ordered by node. A node has one line for each change of a key, for any number of
// streams; the totals count clients and nodes.
func TestExplainDiffTable(t *testing.T) {
	cds, eds := "type.googleapis.com/envoy.config.cluster.v3.Cluster", "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	d := &Difference{Clients: 5, Moving: []moving{
		{Stream: 1, Node: "b", Types: []typeChange{{Type: cds, From: "k", To: "l"}, {Type: eds, From: "k", Refused: "no rule\nmatches"}}},
		{Stream: 2, Node: "a", Types: []typeChange{{Type: cds, From: "k", To: "l"}}},
		{Stream: 3, Node: "a", Types: []typeChange{{Type: eds, From: "k", To: "l"}}},
		{Stream: 4, Node: "", Types: []typeChange{{Type: eds, To: "k"}}},
	}}
	d.count()
	var out strings.Builder
	d.Print(&out)
	const want = `NODE  TYPES    KEY  NEW KEY
-     EDS      -    k
a     CDS EDS  k    l
b     CDS      k    l
b     EDS      k    refused: no rule matches

CLIENTS  NODES  KEY  NEW KEY
3        2      k    l
1        1      -    k
1        1      k    refused

4 of 5 clients would reconnect, over 0s; the relay would refuse 1 of them for some or all types
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
}

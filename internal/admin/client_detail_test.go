package admin

import (
	"encoding/json"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// /clients/{node} has locality and metadata of the node, without secrets and in bounded size. The
// list of all clients does not have them.
func TestClientHasItsLocalityAndMetadata(t *testing.T) {
	r := serve(t, nil)
	var table xds.NodeTable
	node := func(team string) *xds.Node {
		metadata := xdstest.Must(structpb.NewStruct(map[string]any{"team": team, "token": "open-sesame"}))(t)
		raw := xdstest.Must(proto.Marshal(&corev3.Node{Id: "n", Locality: &corev3.Locality{Region: "eu", Zone: "eu-1"}, Metadata: metadata}))(t)
		n := xdstest.Must(table.Intern(raw))(t)
		return n
	}
	small, large := node("shop"), node(strings.Repeat("x", 64<<10))
	r.shown.set(func() {
		r.shown.clients = []inspect.ClientStatus{{Stream: 1, Node: "n", FullNode: small}, {Stream: 2, Node: "n", FullNode: small}, {Stream: 3, Node: "n", FullNode: large}, {Stream: 4, Node: "n"}}
	})
	for _, path := range []string{"/clients/n", "/clients/n?sort=worst"} {
		var got struct{ Items []inspect.ClientDetail }
		answer := r.get(path, &got)
		if strings.Contains(string(answer.body), "sesame") {
			t.Errorf("%s: a secret is shown: %s", path, answer.body)
		}
		for i, c := range got.Items {
			var at struct{ Region, Zone string }
			var meta struct{ Team, Token string }
			if i < 2 && (json.Unmarshal(c.Locality, &at) != nil || json.Unmarshal(c.Metadata, &meta) != nil || at.Zone != "eu-1" || meta.Team != "shop" || meta.Token != "[redacted]") {
				t.Errorf("%s: %s %s", path, c.Locality, c.Metadata)
			}
			if i >= 2 && (c.Metadata != nil || c.NodeBytes > 0 != (i == 2)) {
				t.Errorf("%s: %+v", path, c)
			}
		}
		if len(got.Items) != 4 {
			t.Errorf("%s: %s", path, answer.body)
		}
	}
	// The names are there on request, in bounded number.
	var got struct{ Items []inspect.ClientDetail }
	r.get("/clients/n?names=true&limit=1", &got)
	if len(got.Items) != 1 || len(got.Items[0].Names) != 1 {
		t.Fatalf("%+v", got)
	}
	if of := got.Items[0].Names[0]; of.Type != "t" || len(of.Items) != 200 || !of.More || of.Items[199] != (inspect.NameState{Name: "r199", State: "SYNCED", Absent: true}) {
		t.Errorf("%+v", of)
	}
	if got := r.get("/clients", nil); strings.Contains(string(got.body), "eu-1") {
		t.Errorf("%s", got.body)
	}
}

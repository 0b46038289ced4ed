package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// The filters of /clients select the same types together, and the worst client comes first.
func TestClientFilters(t *testing.T) {
	r := serve(t, nil)
	now := time.Unix(1_700_000_000, 0)
	cds, eds, rds := string(xds.ClusterType), string(xds.EndpointType), string(xds.RouteType)
	typ := func(url, key, state string, age time.Duration) inspect.TypeStatus {
		return inspect.TypeStatus{Type: url, Key: key, State: state, Since: now.Add(-age)}
	}
	r.shown.clients = []inspect.ClientStatus{
		{Stream: 1, UserAgent: "envoy", UserAgentVersion: "1.40.0", Types: []inspect.TypeStatus{typ(cds, "a", inspect.StateSynced, 0), typ(eds, "a", inspect.StateStale, time.Second)}},
		{Stream: 2, UserAgent: "envoy", Types: []inspect.TypeStatus{typ(cds, "b", inspect.StateNacked, time.Second)}},
		{Stream: 3, Node: "z", UserAgent: "gRPC Go", Types: []inspect.TypeStatus{typ(cds, "b", inspect.StateNacked, time.Minute), typ(eds, "a", inspect.StateSynced, 0)}},
		{Stream: 4, Since: now},
		{Stream: 5, Node: "a", Types: []inspect.TypeStatus{typ(rds, "c", inspect.StateNacked, time.Hour), typ(eds, "c", inspect.StateSynced, 0)}},
	}
	for query, want := range map[string][]uint64{
		"":                             {1, 2, 3, 4, 5},
		"state=NACKED":                 {2, 3, 5},
		"state=stale,not_sent":         {1, 4},
		"state=SYNCED":                 {}, // each client has one state, the worst of its types
		"state=SYNCED&type=CDS":        {1},
		"state=SYNCED&key=a":           {3},
		"state=SYNCED&key=c":           {},
		"state=SYNCED&key=c&type=EDS":  {5},
		"state=STALE&type=CDS":         {},
		"type=EDS":                     {1, 3, 5},
		"key=a":                        {1, 3},
		"key=b&state=SYNCED":           {},
		"user_agent=envoy":             {1, 2},
		"user_agent=envoy+1.40.0":      {1},
		"user_agent=gRPC+Go&state=any": nil,
		"sort=worst":                   {5, 3, 2, 1, 4},
		"sort=worst&type=EDS":          {1, 5, 3}, // those that are SYNCED by their nodes
		"sort=best":                    nil,
		"type=XYZ":                     nil,
	} {
		if want == nil {
			r.want(400, "GET", "/clients?"+query, nil)
			continue
		}
		got, each := pages[inspect.ClientStatus](r, "/clients?limit=1&"+query)
		for _, p := range each {
			if strings.Contains(query, "sort") != (p.Total != nil) || p.Total != nil && *p.Total != len(want) {
				t.Errorf("%s: total %v", query, p.Total)
			}
		}
		if have := streamsOf(got); !slices.Equal(have, want) {
			t.Errorf("%s has streams %v, want %v", query, have, want)
		}
	}
	// A page token of one order is none of the other.
	var first list[inspect.ClientStatus]
	r.get("/clients?limit=1", &first)
	r.want(400, "GET", "/clients?limit=1&sort=worst&page_token="+first.Next, nil)
}

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

func TestFind(t *testing.T) {
	r := serve(t, nil)
	r.shown.set(func() {
		r.shown.keys = []keystatus.Key{{Key: "edge/eu-1"}, {Key: "mesh"}, {Key: strings.Repeat("edge", 1000)}}
		two := synced("Edge-1", "edge/eu-1")
		two.Types[0].State = inspect.StateNacked
		r.shown.clients = []inspect.ClientStatus{synced("my-edge", "mesh"), synced("Edge-1", "edge/eu-1"), two, synced("other", "mesh")}
	})
	var got found
	r.get("/find?text=EDGE", &got)
	want := found{Keys: []string{"edge/eu-1"}, Nodes: []foundNode{{"Edge-1", "edge/eu-1", inspect.StateNacked}, {"my-edge", "mesh", inspect.StateSynced}}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", got, want)
	}
	r.get("/find?text=nobody", &got)
	if got.Keys == nil || len(got.Keys)+len(got.Nodes) != 0 || got.More {
		t.Errorf("found %v", got)
	}
	r.want(http.StatusBadRequest, http.MethodGet, "/find", nil)
	r.want(http.StatusBadRequest, http.MethodGet, "/find?text="+strings.Repeat("a", 2000), nil)

	r.shown.set(func() {
		for i := range 100 {
			r.shown.clients = append(r.shown.clients, synced(fmt.Sprintf("edge-%03d", i), "mesh"))
		}
	})
	r.get("/find?text=edge", &got)
	if len(got.Nodes) != maxFound || !got.More {
		t.Errorf("%d nodes, more: %v", len(got.Nodes), got.More)
	}
}

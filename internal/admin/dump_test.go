package admin

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"xdsrelay/internal/admin/compare"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// resourceOf makes a resource from a message.
func resourceOf(t *testing.T, typ xds.TypeURL, name string, m proto.Message) *xds.Resource {
	t.Helper()
	a := &anypb.Any{TypeUrl: string(typ), Value: []byte("unknown")}
	if m != nil {
		b := xdstest.Must(proto.Marshal(m))(t)
		a.Value = b
	}
	wire := xdstest.Must(proto.Marshal(a))(t)
	r := xdstest.Must(xds.NewResource(xds.TypeOf(typ), name, wire))(t)
	return r
}

func snapshotOf(typ xds.TypeURL, rs ...*xds.Resource) *snapshot.Snapshot {
	b := snapshot.NewBuilder(xds.TypeOf(typ))
	b.Apply(snapshot.Update{Type: typ, Origin: "o", Version: "7", Wildcard: true, Changed: rs})
	s, _ := b.Snapshot(nil, 1)
	return s
}

func clusterWith(t *testing.T, name, stat string) *xds.Resource {
	return resourceOf(t, xds.ClusterType, name, &clusterv3.Cluster{Name: name, AltStatName: stat})
}

func TestConfigDump(t *testing.T) {
	r := serve(t, nil)
	const odd xds.TypeURL = "type.googleapis.com/acme.Odd"
	secret := &tlsv3.Secret{Name: "s", Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{}}}
	r.shown.keys = []keystatus.Key{{Key: "web"}, {Key: "idle"}}
	r.shown.held = map[xds.Key][]*snapshot.Snapshot{
		xds.NewKey("web"): {
			snapshotOf(xds.SecretType, resourceOf(t, xds.SecretType, "s", secret)),
			snapshotOf(odd, resourceOf(t, odd, "x", nil)),
			snapshotOf(xds.ClusterType, clusterWith(t, "a", "inline_string: \"hunter2\""), clusterWith(t, "b", ""), clusterWith(t, "ab", "")),
		},
		xds.NewKey("idle"): {},
	}
	ask := func(path string) string {
		t.Helper()
		var all []string
		dumped, _ := pages[DumpedResource](r, path)
		for _, d := range dumped {
			text := ""
			if d.Resource != nil {
				var m map[string]any
				xdstest.NoError(t, json.Unmarshal(d.Resource, &m))
				if text = " is "; m["name"] != nil {
					text += fmt.Sprint(m["name"])
				} else {
					text += string(xdstest.Must(json.Marshal(m["value"]))(t))
				}
			}
			all = append(all, xds.TypeOf(xds.TypeURL(d.Type)).Label()+" "+d.Name+text)
		}
		return strings.Join(all, ", ")
	}
	whole := `other x is {"bytes":7,"redacted_type":"type.googleapis.com/acme.Odd"}`
	for path, want := range map[string]string{
		"/config_dump?key=web":                                      whole + ", CDS a is a, CDS ab is ab, CDS b is b, SDS s is s",
		"/config_dump?key=web&limit=1":                              whole + ", CDS a is a, CDS ab is ab, CDS b is b, SDS s is s",
		"/config_dump?key=web&type=cds":                             "CDS a is a, CDS ab is ab, CDS b is b",
		"/config_dump?key=web&type=CDS&find=b":                      "CDS ab is ab, CDS b is b",
		"/config_dump?key=web&find=nothing":                         "",
		"/config_dump?key=web&name=ab":                              "CDS ab is ab",
		"/config_dump?key=idle":                                     "",
		"/resources?key=web&type=CDS&find=a&limit=1":                "CDS a, CDS ab",
		"/config_dump?key=web&type=" + url.QueryEscape(string(odd)): whole,
	} {
		if got := ask(path); got != want {
			t.Errorf("%s has %s, want %s", path, got, want)
		}
	}
	if body := string(r.get("/config_dump?key=web&type=CDS&name=a", nil).body); strings.Contains(body, "hunter2") || !strings.Contains(body, `"bytes"`) {
		t.Errorf("%s", body)
	}
	for path, status := range map[string]int{
		"/config_dump": 400, "/config_dump?key=": 400, "/config_dump?key=no%20key": 400, "/config_dump?key=other": 404, "/config_dump?key=web&type=LDS": 404,
		"/config_dump?key=web&type=XDS": 400, "/config_dump?key=web&type=": 400, "/config_dump?key=web&name=c": 404, "/config_dump?key=web&name=": 400,
		"/config_dump?key=web&type=SDS&name=a": 404, "/resources": 400, "/config_dump?key=web&resource=a": 400,
	} {
		var f failure
		if r.want(status, "GET", path, &f); f.Error == "" {
			t.Errorf("%s does not say why", path)
		}
	}
}

func TestDiffOfANode(t *testing.T) {
	r := serve(t, nil)
	odd := "sidecar~1/x y"
	u := inspect.Unacknowledged{
		Stream: 3, Node: odd, Key: xds.NewKey("web"), Type: xds.TypeOf(xds.ClusterType), State: inspect.StateNacked, Since: time.Unix(1e9, 0),
		Version: "2", AckedVersion: "1", Nack: &subscriber.Nack{Version: "2", Message: "no", At: time.Unix(1e9, 0)},
	}
	r.shown.unacknowledged = []inspect.Unacknowledged{u}
	r.shown.clients = []inspect.ClientStatus{{Stream: 3, Node: odd}, {Stream: 4, Node: "fine"}}
	r.shown.differences = []snapshot.Difference{
		{Name: "a", Has: clusterWith(t, "a", "one"), Offered: clusterWith(t, "a", "two")},
		{Name: "b", Has: clusterWith(t, "b", "")},
		{Name: "c", OfferedGone: true, Has: clusterWith(t, "c", "")},
	}
	var got struct{ Items []Unacknowledged }
	r.get("/diff/"+escape(odd), &got)
	if len(got.Items) != 1 || got.Items[0].Nack.Message != "no" || got.Items[0].Short != "CDS" || len(got.Items[0].Resources) != 3 {
		t.Fatalf("%+v", got)
	}
	rs := got.Items[0].Resources
	if !strings.Contains(rs[0].Diff, "-alt_stat_name: one\n+alt_stat_name: two\n") || rs[0].OfferedNotHeld {
		t.Errorf("%+v", rs[0])
	}
	if string(rs[1].Offered) != "null" || !strings.Contains(rs[1].Diff, "-name: b\n") {
		t.Errorf("%+v", rs[1])
	}
	if !rs[2].OfferedNotHeld || rs[2].HasNotHeld || rs[2].Diff != "" {
		t.Errorf("%+v", rs[2])
	}

	// For a very large resource only size and version are shown.
	large := func(text string) *xds.Resource {
		return clusterWith(t, "a", strings.Repeat(text, compare.MaxCompared/5+1))
	}
	r.shown.differences = []snapshot.Difference{{Name: "a", Has: large("long "), Offered: large("LONG ")}, {Name: "b", Has: clusterWith(t, "b", "small"), Offered: large("LONG ")}}
	body := r.get("/diff/"+escape(odd), &got).body
	rs = got.Items[0].Resources
	if len(body) > 10_000 || !strings.Contains(string(rs[0].Has), `"bytes": 10`) || rs[0].Diff == "" || !strings.Contains(rs[1].Diff, "-alt_stat_name: small") || !strings.Contains(rs[1].Diff, "+cannot_be_shown: ") {
		t.Errorf("%d bytes: %.3000s", len(body), body)
	}

	// Bounded in number and in bytes.
	r.shown.differences = nil
	for range maxDifferences + 3 {
		r.shown.differences = append(r.shown.differences, snapshot.Difference{Name: "a", Offered: clusterWith(t, "a", strings.Repeat("long ", maxDifferenceBytes/25))})
	}
	body = r.get("/diff/"+escape(odd), &got).body
	if n := len(got.Items[0].Resources); n >= maxDifferences || got.Items[0].More != maxDifferences+3-n || len(body) > 3*maxDifferenceBytes {
		t.Errorf("%d resources and %d more, in %d bytes", n, got.Items[0].More, len(body))
	}
	r.shown.differences = nil
	if r.get("/diff/"+escape(odd), &got); !got.Items[0].NotHeld || got.Items[0].Resources == nil {
		t.Errorf("%+v", got)
	}
	// A type without a key has nothing to compare.
	r.shown.unacknowledged = []inspect.Unacknowledged{{Stream: 3, Node: odd, Type: xds.TypeOf(xds.ClusterType), State: inspect.StateNotSent, NoKey: "unmapped_later_type"}}
	var none struct{ Items []Unacknowledged }
	if r.get("/diff/"+escape(odd), &none); len(none.Items) != 1 || none.Items[0].NoKey != "unmapped_later_type" || none.Items[0].NotHeld || none.Items[0].Key != "" {
		t.Errorf("%+v", none)
	}
	if body := string(r.get("/diff/fine", nil).body); body != "{\n  \"items\": []\n}\n" {
		t.Errorf("%s", body)
	}
	r.want(404, "GET", "/diff/nobody", nil)
}

// A node with many streams has several pages. Names without an answer are listed up to a bound.
func TestDiffOfANodeOnManyStreams(t *testing.T) {
	r := serve(t, nil)
	for i := range 7 {
		r.shown.clients = append(r.shown.clients, inspect.ClientStatus{Stream: uint64(i + 1), Node: "n"})
		u := inspect.Unacknowledged{Stream: uint64(i + 1), Node: "n", Key: xds.NewKey("web"), Type: xds.TypeOf(xds.EndpointType), State: inspect.StateNotSent, Unanswered: []string{"x"}}
		if i != 3 { // it has everything
			r.shown.unacknowledged = append(r.shown.unacknowledged, u)
		}
	}
	for range maxDifferences {
		r.shown.unacknowledged[0].Unanswered = append(r.shown.unacknowledged[0].Unanswered, "y")
	}
	var streams []uint64
	all, each := pages[Unacknowledged](r, "/diff/n?limit=2")
	for _, u := range all {
		streams = append(streams, u.Stream)
		if u.Awaits[0] != "x" || u.NotHeld || len(u.Awaits) > maxDifferences || (u.More == 1) != (u.Stream == 1) {
			t.Errorf("%+v", u)
		}
	}
	if fmt.Sprint(streams) != "[1 2 3 5 6 7]" || len(each) < 3 {
		t.Errorf("%v on %d pages", streams, len(each))
	}
	// Bounded in bytes too.
	r.shown.differences = nil
	for range 5 {
		r.shown.differences = append(r.shown.differences, snapshot.Difference{Name: "a", Offered: clusterWith(t, "a", strings.Repeat("long ", maxDifferenceBytes/25))})
	}
	for i := range r.shown.unacknowledged {
		r.shown.unacknowledged[i].Unanswered = nil
	}
	var got list[Unacknowledged]
	r.get("/diff/n", &got)
	if len(got.Items) != 1 || got.Next == "" {
		t.Errorf("%d items, next %q", len(got.Items), got.Next)
	}
	r.want(400, "GET", "/diff/n?page_token=eA", nil)
}

package admin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"xdsrelay/internal/admin/compare"
	"xdsrelay/internal/admin/jsonyaml"
	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/fanout/refusal"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/orchestrator/history"
	"xdsrelay/internal/store"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/upstream"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

func TestReadyFromOpenListenersUntilDrain(t *testing.T) {
	r := serve(t, nil)
	is := func(status int, state string) {
		t.Helper()
		var got readiness
		r.want(status, "GET", "/ready", &got)
		if got.State != state || got.Ready != (status == http.StatusOK) {
			t.Fatalf("/ready says %+v, want %s", got, state)
		}
		r.get("/live", nil)
	}
	is(503, "starting")
	r.SetReady(false)
	is(503, "starting")
	r.SetReady(true)
	is(200, "serving")
	r.SetReady(false)
	is(503, "draining")
	r.SetReady(true) // no effect any more
	is(503, "draining")
}

func TestServerInfo(t *testing.T) {
	r := serve(t, nil)
	r.SetReady(true)
	r.metrics.Streams[telemetry.Delta].Add(3)
	r.metrics.Keys.Set(2)
	r.shown.away = []refusal.Recent{{Reason: "unmapped", Count: 2, Node: "n", Error: "no rule"}}
	var got serverInfo
	r.get("/server_info", &got)
	if !reflect.DeepEqual(got.RecentRefusals, r.shown.away) {
		t.Errorf("%+v", got.RecentRefusals)
	}
	if got.Name != "replica" || got.Version != "v1" || got.State != "serving" || got.Streams.Delta != 3 || got.Keys != 2 ||
		got.Level != "info" || !strings.HasPrefix(got.Go, "go") || time.Since(got.Started) > time.Minute {
		t.Fatalf("%+v", got)
	}
}

// storeOf is a store with this status.
type storeOf store.Status

func (s storeOf) Status() store.Status { return store.Status(s) }

// /server_info has the store's status, if there is a store.
func TestServerInfoOfTheStore(t *testing.T) {
	var none serverInfo
	serve(t, nil).get("/server_info", &none)
	if none.Store != nil {
		t.Errorf("%+v", none.Store)
	}
	st := storeOf{Path: "/kept", Files: 3, Bytes: 4000, Oldest: time.Unix(1e9, 0).UTC(), Waiting: 1, Failed: 2, Off: true, LastError: "no space"}
	var got serverInfo
	serve(t, func(o *Options) { o.Store = st }).get("/server_info", &got)
	if got.Store == nil || *got.Store != store.Status(st) {
		t.Errorf("%+v", got.Store)
	}
}

// Keys whose text needs quoting, escaping, or looks like a path.
var oddKeys = []xds.Key{
	xds.NewKey("edge", "eu-1"), xds.NewKey("edge/eu", "1"), xds.NewKey("a_b", "c"), xds.NewKey("a", "b_c"),
	xds.NewKey(""), xds.NewKey("..", "live"), xds.NewKey(".."), xds.NewKey("100%", "ä?&#\n"), xds.NewKey("a//b", "%2F"),
}

// ?disconnected=true selects the keys that the overview counts as disconnected.
func TestDisconnectedKeys(t *testing.T) {
	r := serve(t, nil)
	r.shown.keys = []keystatus.Key{
		{Key: "a", Members: 1, Upstream: keystatus.Upstream{Connected: true}},
		{Key: "b", Members: 2},
		{Key: "idle"},
	}
	r.want(400, "GET", "/keys?disconnected=1", nil)
	for query, want := range map[string]string{"": "a b idle", "?disconnected=false": "a b idle", "?disconnected=true": "b"} {
		var got list[keystatus.Key]
		r.get("/keys"+query, &got)
		if names := keysOf(got.Items); strings.Join(names, " ") != want {
			t.Errorf("%s: %v, want %s", query, names, want)
		}
	}
}

func TestKeys(t *testing.T) {
	r := serve(t, nil)
	for _, k := range oddKeys {
		r.shown.keys = append(r.shown.keys, keystatus.Key{
			Key: k.String(), Elements: k.Elements(), Since: time.Unix(1, 0),
			NacksTotal: 1, Nacks: []history.Nack{{Type: "t", Message: "no"}},
		})
	}
	var all list[keystatus.Key]
	r.get("/keys", &all)
	if len(all.Items) != len(oddKeys) || all.Next != "" {
		t.Fatalf("%d keys, next %q", len(all.Items), all.Next)
	}
	for i, k := range all.Items {
		if i > 0 && k.Key <= all.Items[i-1].Key {
			t.Errorf("%s comes after %s", k.Key, all.Items[i-1].Key)
		}
		if k.Nacks != nil || k.NacksTotal != 1 {
			t.Errorf("%s: the list has NACKs", k.Key)
		}
		var one keystatus.Key
		r.get("/keys/"+escape(k.Key), &one)
		if one.Key != k.Key || !reflect.DeepEqual(one.Elements, k.Elements) || len(one.Nacks) != 1 {
			t.Errorf("/keys/%s is %+v", escape(k.Key), one)
		}
	}
	// A key is found by its elements, and by its JSON.
	for name, want := range map[string]xds.Key{
		`"edge/eu"/1`: oddKeys[1], `\"edge/eu\"/1`: oddKeys[1],
		"edge/eu-1": oddKeys[0], "../live": oddKeys[5], "..": oddKeys[6], "a//b/%2F": oddKeys[8], `""`: oddKeys[4],
	} {
		for _, path := range []string{url.PathEscape(name), (&url.URL{Path: name}).EscapedPath()} {
			var one keystatus.Key
			r.get("/keys/"+path, &one)
			if one.Key != want.String() {
				t.Errorf("/keys/%s is %s, want %s", path, one.Key, want)
			}
		}
		r.shown.set(func() {
			r.shown.clients = []inspect.ClientStatus{{Stream: 1, Types: []inspect.TypeStatus{{Key: want.String()}}}, {Stream: 2, Types: []inspect.TypeStatus{{Key: "other"}}}}
		})
		var of list[inspect.ClientStatus]
		if r.get("/clients?key="+url.QueryEscape(name), &of); len(of.Items) != 1 || of.Items[0].Stream != 1 {
			t.Errorf("/clients?key=%s: %+v", name, of.Items)
		}
	}
	// A name that fits two keys is refused.
	r.shown.set(func() {
		for _, k := range []xds.Key{xds.NewKey("x y/z"), xds.NewKey("x y", "z")} {
			r.shown.keys = append(r.shown.keys, keystatus.Key{Key: k.String(), Elements: k.Elements()})
		}
	})
	r.want(400, "GET", "/keys/x%20y/z", nil)
	// A name that is a key never means another one.
	for name, want := range map[string]string{
		"edge/eu/1":       `key edge/eu/1 is not in use; "edge/eu"/1 is in use, but is another key`,
		`"\"edge/eu\"/1"`: `key "\"edge/eu\"/1" is not in use`,
	} {
		var f failure
		if r.want(404, "GET", "/keys/"+url.PathEscape(name), &f); f.Error != want {
			t.Errorf("%s: %s", name, f.Error)
		}
		var p progress
		if r.get("/progress/"+url.PathEscape(name)+"?type=CDS&version=1", &p); p.Key != name || p.Note != want {
			t.Errorf("%s: %+v", name, p)
		}
		var of list[inspect.ClientStatus]
		if r.get("/clients?key="+url.QueryEscape(name), &of); len(of.Items) != 0 {
			t.Errorf("/clients?key=%s: %+v", name, of.Items)
		}
	}
	// Slashes between plain elements may stay.
	r.get("/keys/edge/eu-1", nil)
	r.want(404, "GET", "/keys/nowhere", nil)
	r.want(400, "GET", "/keys/no%20key", nil)
	r.want(400, "GET", "/keys/", nil)
}

// escape percent-encodes a path's element, also dots, which would be read as a parent path.
func escape(s string) string { return strings.ReplaceAll(url.PathEscape(s), ".", "%2E") }

func TestClients(t *testing.T) {
	r := serve(t, nil)
	key := xds.NewKey("a b", "c").String()
	odd := "sidecar~10.0.0.1~web/0?#%~ä"
	r.shown.clients = []inspect.ClientStatus{
		{Stream: 10, Node: odd, Types: []inspect.TypeStatus{{Type: "t", Key: key, State: inspect.StateSynced}}},
		{Stream: 9, Node: "b", Types: []inspect.TypeStatus{{Type: "t", Key: "other"}}},
		{Stream: 11, Node: odd},
		{Stream: 12, Node: ""},
	}
	streams := func(path string, want ...uint64) {
		t.Helper()
		var got list[inspect.ClientStatus]
		r.get(path, &got)
		if have := streamsOf(got.Items); !reflect.DeepEqual(have, want) {
			t.Errorf("%s has streams %v, want %v", path, have, want)
		}
	}
	streams("/clients", 9, 10, 11, 12)
	streams("/clients/"+escape(odd), 10, 11)
	streams("/clients/"+escape(odd)+"?limit=1", 10)
	streams("/clients/b", 9)
	streams("/clients/", 12) // the client without an id
	streams("/clients?key="+url.QueryEscape(key), 10)
	streams("/clients?key=nobody", []uint64(nil)...)
	r.want(404, "GET", "/clients/nobody", nil)
	r.want(404, "GET", "/clients/b?key=nobody", nil)
	for i, id := range []string{"spiffe://cluster.local/ns/a/sa/b", "a/../b", "./x//", "..", "//"} {
		r.shown.set(func() { r.shown.clients = []inspect.ClientStatus{{Stream: uint64(i) + 1, Node: id}} })
		streams("/clients/"+url.PathEscape(id), uint64(i)+1)
		streams("/clients/"+(&url.URL{Path: id}).EscapedPath(), uint64(i)+1)
		streams("/clients/?sort=worst&name="+url.QueryEscape(id), uint64(i)+1)
	}
	r.want(400, "GET", "/clients?key=", nil)
	r.want(400, "GET", "/clients/b?limit=0", nil)
	r.want(400, "GET", "/clients?page_token="+base64.RawURLEncoding.EncodeToString([]byte("ten")), nil)
}

func TestNacks(t *testing.T) {
	r := serve(t, nil)
	row := func(message string) history.Nack {
		return history.Nack{Type: string(xds.ClusterType), Clients: []history.NackClient{{Node: "n", Count: 2}}, ClientsTotal: 1, Version: "1", Message: message, Count: 7}
	}
	r.shown.keys = []keystatus.Key{
		{Key: "b", NacksTotal: 14, Nacks: []history.Nack{row("<no> & no"), row("another")}},
		{Key: "a"},
		{Key: "c", NacksTotal: 1, Nacks: []history.Nack{{Type: string(xds.EndpointType)}}},
	}
	for range 3 { // one more than are kept
		r.shown.states = append(r.shown.states, inspect.TypeState{Key: xds.NewKey("b"), Type: xds.ClusterType, State: inspect.StateNacked, Nack: &subscriber.Nack{Version: "1", Message: "another"}})
	}
	r.shown.states[2].Nack = &subscriber.Nack{Version: "2", Message: "another"}
	var all list[Nack]
	body := r.get("/nacks", &all).body
	if len(all.Items) != 3 || all.Items[0].Key != "b" || all.Items[1].Key != "b" || all.Items[2].Key != "c" || all.Items[0].Clients[0].Node != "n" {
		t.Fatalf("%+v", all)
	}
	if !strings.Contains(string(body), `"<no> & no"`) {
		t.Errorf("not readable: %s", body)
	}
	if all.Items[0].Message == "another" || all.Items[0].StillNacking != 0 || all.Items[1].StillNacking != 2 {
		t.Errorf("%+v", all.Items)
	}
	if k := new(keystatus.Key); r.get("/keys/b", k).StatusCode != 200 || k.Nacks[1].StillNacking != 2 {
		t.Errorf("%+v", k.Nacks)
	}
	if paged, _ := pages[Nack](r, "/nacks?limit=1"); !reflect.DeepEqual(paged, all.Items) {
		t.Errorf("page by page %+v", paged)
	}
	r.shown.set(func() {
		r.shown.keys[0].Nacks[0].Rejected = history.NewRejected([]snapshot.Difference{
			{Name: "a", Has: clusterWith(t, "a", "one"), Offered: clusterWith(t, "a", "two")}, {Name: "b", OfferedGone: true},
		}, 3, true)
		r.shown.keys[0].Nacks[1].Rejected = history.NewRejected(nil, 0, false)
	})
	var diffs struct {
		Items []struct {
			Resources []compare.Difference
			NotHeld   bool `json:"not_held_any_more"`
			More      int
		}
	}
	r.get("/nacks?diff=true", &diffs)
	for i, want := range []bool{false, true, true} { // not compared; not kept
		if d := diffs.Items[i]; d.NotHeld != want || d.Resources == nil {
			t.Errorf("%d: %+v", i, d)
		}
	}
	if d := diffs.Items[0]; d.More != 3 || len(d.Resources) != 2 || !strings.Contains(d.Resources[0].Diff, "-alt_stat_name: one\n+alt_stat_name: two\n") || !d.Resources[1].OfferedNotHeld {
		t.Errorf("%+v", d)
	}
	for _, path := range []string{"/nacks", "/nacks?diff=false", "/keys/b"} {
		if strings.Contains(string(r.get(path, nil).body), `"resources": [`) {
			t.Errorf("%s has resources", path)
		}
	}
	r.want(400, "GET", "/nacks?diff=1", nil)
	var of list[Nack]
	if r.get("/nacks?key=c", &of); len(of.Items) != 1 || of.Items[0].Type != string(xds.EndpointType) {
		t.Errorf("of one key %+v", of)
	}
	for query, want := range map[string]int{"type=EDS": 1, "type=CDS&version=1": 2, "type=CDS&version=2": 0, "version=": 1, "key=b&type=EDS": 0} {
		if r.get("/nacks?"+query, &of); len(of.Items) != want {
			t.Errorf("%s: %+v, want %d", query, of, want)
		}
	}
	r.want(400, "GET", "/nacks?key=", nil)
	r.want(400, "GET", "/nacks?type=", nil)
}

func TestProgress(t *testing.T) {
	r := serve(t, nil)
	r.shown.states = []inspect.TypeState{{Key: xds.NewKey("web"), Type: xds.ClusterType}, {Key: xds.NewKey("web"), Type: xds.EndpointType}}
	for _, typ := range []string{"CDS", "cds", string(xds.ClusterType)} {
		var got keystatus.Progress
		r.get("/progress/web?version=v1&mark=m&type="+typ, &got)
		if got.Key != "web" || got.Type != string(xds.ClusterType) || got.Version != "v1" || got.Mark != "m" || got.Clients != 1 {
			t.Errorf("%+v", got)
		}
	}
	var got keystatus.Progress
	r.get("/progress/web?version=v1&type=CDS&or_newer=true", &got)
	if !got.Known || got.Draining {
		t.Errorf("%+v", got)
	}
	r.Server.SetReady(true)
	r.Server.SetReady(false)
	if r.get("/progress/web?version=v1&type=CDS&or_newer=false", &got); got.Known || !got.Draining {
		t.Errorf("%+v", got)
	}
	for _, q := range []string{"", "?type=CDS", "?version=v", "?type=CDS&version=v&or_newer=2", "?type=CDS&version=", "?type=CDS&version=v&percent=3"} {
		r.want(400, "GET", "/progress/web"+q, nil)
	}
	r.want(400, "GET", "/progress/no%20key?type=CDS&version=v", nil)
}

func TestOrigins(t *testing.T) {
	r := serve(t, nil)
	at := time.Unix(1700000000, 0).UTC()
	r.shown.origins = []upstream.OriginStatus{
		{Name: "z", Address: "127.0.0.1:1", Streams: 4, Connections: 2, Reached: at, Reconnects: 3, LastError: "refused", LastErrorAt: at},
		{Name: "a", Address: "file:///x", Away: true, AwaySince: at, Faults: []string{"/x/a.yaml: bad", "/x/b.yaml: gone"}},
	}
	var got list[upstream.OriginStatus]
	r.get("/origins", &got)
	if !reflect.DeepEqual(got.Items, r.shown.origins) {
		t.Fatalf("%+v", got)
	}
	if paged, _ := pages[upstream.OriginStatus](r, "/origins?limit=1"); !reflect.DeepEqual(paged, got.Items) {
		t.Errorf("by pages: %+v", paged)
	}
}

func TestNothingThereIsAnEmptyList(t *testing.T) {
	r := serve(t, nil)
	for path, total := range map[string][2]string{"/keys": {",\n  \"total\": 0", "total: 0\n"}, "/clients": {}, "/nacks": {}, "/origins": {}} {
		if body := string(r.get(path, nil).body); body != "{\n  \"items\": []"+total[0]+"\n}\n" {
			t.Errorf("%s: %q", path, body)
		}
		if body := string(r.get(path+"?format=yaml", nil).body); body != "items: []\n"+total[1] {
			t.Errorf("%s: %q", path, body)
		}
	}
}

// All pages together have each item once, for each limit, while items come and go.
func TestPaging(t *testing.T) {
	r := serve(t, nil)
	for i := range 25 {
		r.shown.keys = append(r.shown.keys, keystatus.Key{Key: fmt.Sprintf("k%02d", i)})
	}
	for _, limit := range []int{1, 4, 5, 24, 25, 26, 10000} {
		all, each := pages[keystatus.Key](r, fmt.Sprint("/keys?limit=", limit))
		if want := (25 + limit - 1) / limit; len(each) != want || len(all) != 25 {
			t.Errorf("limit %d: %d pages with %d items, want %d with 25", limit, len(each), len(all), want)
		}
	}

	var p list[keystatus.Key]
	r.get("/keys?limit=3", &p)
	r.shown.set(func() {
		r.shown.keys = append(r.shown.keys[:1:1], r.shown.keys[3:]...) // k01 and k02 go
		r.shown.keys = append(r.shown.keys, keystatus.Key{Key: "a"})
	})
	r.get("/keys?limit=3&page_token="+p.Next, &p)
	if p.Items[0].Key != "k03" {
		t.Errorf("the second page begins with %s, want k03", p.Items[0].Key)
	}

	r.shown.clients = []inspect.ClientStatus{{Stream: 1}, {Stream: 2}}
	var c list[inspect.ClientStatus]
	r.get("/clients?limit=1", &c)
	clientsToken := c.Next // a token of another list
	for _, q := range []string{"limit=0", "limit=-1", "limit=x", "limit=10001", "page_token=%21", "page_token=zz", "page_token=a2V5", "page_token=" + clientsToken, "limit=1&limit=2", "page-token=x", "format=xml", "x=%zz"} {
		r.want(400, "GET", "/keys?"+q, nil)
	}
}

func TestDefaultLimit(t *testing.T) {
	r := serve(t, nil)
	for i := range defaultLimit + 1 {
		r.shown.clients = append(r.shown.clients, inspect.ClientStatus{Stream: uint64(i) + 1})
	}
	var p list[inspect.ClientStatus]
	r.get("/clients", &p)
	if len(p.Items) != defaultLimit || p.Next == "" {
		t.Fatalf("%d items, next %q", len(p.Items), p.Next)
	}
	r.get("/clients?page_token="+p.Next, &p)
	if len(p.Items) != 1 || p.Items[0].Stream != defaultLimit+1 {
		t.Fatalf("%d items", len(p.Items))
	}
}

// A long page has all content of its items.
func TestLongPagesHaveEachItem(t *testing.T) {
	r := serve(t, nil)
	for i := range 2000 {
		r.shown.clients = append(r.shown.clients, inspect.ClientStatus{Stream: uint64(i) + 1, Node: "<" + strings.Repeat("x", 200) + "\n\">", Types: []inspect.TypeStatus{}})
	}
	for _, path := range []string{"/clients?limit=1999", "/clients?limit=2000"} {
		var p list[inspect.ClientStatus]
		r.get(path, &p)
		for i := range p.Items {
			if !reflect.DeepEqual(p.Items[i], r.shown.clients[i]) {
				t.Fatalf("%s: %+v", path, p.Items[i])
			}
		}
		if (p.Next != "") != (len(p.Items) < 2000) {
			t.Errorf("%s: next %q", path, p.Next)
		}
	}
}

// A page is bounded in bytes, and has at least one item of any size.
func TestPageBytes(t *testing.T) {
	r := serve(t, nil)
	for i := range 4 {
		r.shown.clients = append(r.shown.clients, inspect.ClientStatus{Stream: uint64(i) + 1, Node: strings.Repeat("x", maxPage/2)})
	}
	r.shown.clients = append(r.shown.clients, inspect.ClientStatus{Stream: 5, Node: strings.Repeat("x", maxPage+1)})
	items, pages, token := 0, 0, ""
	for {
		var p list[inspect.ClientStatus]
		got := r.get("/clients?page_token="+token, &p)
		if len(got.body) > 2*maxPage {
			t.Fatalf("a page of %d bytes", len(got.body))
		}
		items, pages = items+len(p.Items), pages+1
		if token = p.Next; token == "" {
			break
		}
	}
	if items != 5 || pages != 3 {
		t.Fatalf("%d items on %d pages", items, pages)
	}
}

// YAML has the content of JSON for any strings.
func TestYAML(t *testing.T) {
	r := serve(t, nil)
	for i, s := range []string{
		"plain", "on", "1", "1e3", "0x10", "null", "~", "", " a ", "a: b", "- a", "#c", "a\nb\n", "\u2028\x00\x7f", "ä", "{}", "'", `"`,
		"2024-01-01", "!!int", "&a", "*a", strings.Repeat("long ", 100), "\xff",
	} {
		r.shown.clients = append(r.shown.clients, inspect.ClientStatus{
			Stream: uint64(i) + 1, Node: s, Since: time.Unix(1, 0), Types: []inspect.TypeStatus{{Acks: 1 << 63, Wildcard: true}},
		})
	}
	var j, y any
	r.get("/clients", &j)
	got := r.get("/clients?format=yaml", &y)
	if typ := got.Header.Get("Content-Type"); typ != "application/yaml" {
		t.Errorf("content type %q", typ)
	}
	if a, b := normal(t, j), normal(t, y); a != b {
		t.Errorf("YAML differs:\n%s\nJSON:\n%s", b, a)
	}
	// YAML 1.1 reads on as true.
	if s := string(got.body); !strings.Contains(s, "\n    node: \"on\"\n") || !strings.Contains(s, "\n    node: plain\n") {
		t.Errorf("quotes: %s", s)
	}
	// Fields are in the order of JSON.
	if s := string(got.body); strings.Index(s, "stream:") > strings.Index(s, "node:") {
		t.Errorf("order: %s", s)
	}
	got = r.want(404, "GET", "/keys/x?format=yaml", &y)
	if s := string(got.body); !strings.HasPrefix(s, "error: ") {
		t.Errorf("error: %q", s)
	}
}

func TestYAMLKeysMayBeLong(t *testing.T) {
	in := map[string]any{strings.Repeat("k", 5000): 1, "on": 1.5, "x": nil}
	b := xdstest.Must(jsonyaml.YAML(in))(t)
	var out map[string]any
	if err := yaml.Unmarshal(b, &out); err != nil || len(out) != 3 || out["on"] != 1.5 {
		t.Fatalf("%v: %s", err, b)
	}
}

func normal(t *testing.T, v any) string {
	t.Helper()
	b := xdstest.Must(json.Marshal(v))(t)
	var a any
	xdstest.NoError(t, json.Unmarshal(b, &a))
	b, _ = json.MarshalIndent(a, "", " ")
	return string(b)
}

// docs/operations.md explains each field of the store.
func TestDocsExplainEachFieldOfTheStore(t *testing.T) {
	text := xdstest.Must(os.ReadFile("../../docs/operations.md"))(t)
	_, section, _ := strings.Cut(string(text), "\n## The store\n")
	section, _, _ = strings.Cut(section, "\n## ")
	of := reflect.TypeFor[store.Status]()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if !regexp.MustCompile("(?m)^\\|[^|]*`" + name + "`[^|]*\\|").MatchString(section) {
			t.Errorf("the field %s has no row", name)
		}
	}
}

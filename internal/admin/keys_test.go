package admin

import (
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/admin/memberread"
	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/cluster"
	"xdsrelay/internal/fanout/inspect"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A key has the number of clients in each state, in lists too, and the progress of its versions.
func TestKeysCountTheirClients(t *testing.T) {
	r := serve(t, nil)
	web, db := xds.NewKey("web"), xds.NewKey("db")
	r.shown.keys = []keystatus.Key{
		{Key: "db", Types: []keystatus.TypeSummary{{Type: string(xds.ClusterType)}}},
		{Key: "web", Types: []keystatus.TypeSummary{{Type: string(xds.ClusterType), Versions: []keystatus.Version{{Version: "v"}}}}},
	}
	r.shown.states = []inspect.TypeState{
		{Key: web, Type: xds.ClusterType, State: inspect.StateSynced, Stream: 1}, {Key: web, Type: xds.ClusterType, State: inspect.StateSynced, Stream: 2},
		{Key: web, Type: xds.EndpointType, State: inspect.StateSynced, Stream: 2}, {Key: db, Type: xds.ClusterType, State: inspect.StateNacked, Stream: 3},
	}
	var all list[keystatus.Key]
	r.get("/keys", &all)
	if !reflect.DeepEqual(all.Items[0].Types[0].States, map[string]int{inspect.StateNacked: 1}) || !reflect.DeepEqual(all.Items[1].Types[0].States, map[string]int{inspect.StateSynced: 2}) {
		t.Errorf("%+v", all.Items)
	}
	for query, want := range map[string]string{"sort=worst": "[db web]", "find=W": "[web]", "find=x": "[]", "": "[db web]"} {
		got, each := pages[keystatus.Key](r, "/keys?limit=1&"+query)
		if total := *each[0].Total; fmt.Sprint(keysOf(got)) != want || total != len(got) {
			t.Errorf("%s: %v of %d, want %s", query, keysOf(got), total, want)
		}
	}
	r.shown.set(func() { r.shown.states[0].State, r.shown.states[3].State = inspect.StateNacked, inspect.StateSynced })
	if r.get("/keys?sort=worst", &all); all.Items[0].Key != "web" {
		t.Errorf("%s is the first key, but web has a NACK", all.Items[0].Key)
	}
	r.want(400, "GET", "/keys?sort=best", nil)
	r.shown.differences = []snapshot.Difference{{Name: "a", Has: clusterWith(t, "a", "one"), Offered: clusterWith(t, "a", "two")}}
	var changed Rejected
	if r.get("/changes/web?type=CDS&version=2", &changed); changed.NotHeld || len(changed.Resources) != 1 || !strings.Contains(changed.Resources[0].Diff, "+alt_stat_name: two") {
		t.Errorf("%+v", changed)
	}
	if r.get("/changes/web?type=CDS&version=1", &changed); !changed.NotHeld {
		t.Errorf("%+v", changed)
	}
	r.want(400, "GET", "/changes/web?type=XYZ&version=2", nil)
	r.want(400, "GET", "/changes/no%20key?type=CDS&version=2", nil)
	var one keystatus.Key
	r.get("/keys/web", &one)
	if v := one.Types[0].Versions[0]; v.Clients != 2 || v.InStep != 2 {
		t.Errorf("%+v", v)
	}
}

func TestMembers(t *testing.T) {
	r := serve(t, nil)
	r.want(404, "GET", "/members", nil)
	at := time.Unix(1700000000, 0).UTC()
	r = serve(t, func(o *Options) { o.Members = o.Keys.(*fakeRelay) })
	r.shown.roles = map[telemetry.KeyRole]int{telemetry.KeyOwner: 1, telemetry.KeyFollower: 2, telemetry.KeyDirect: 3}
	r.shown.members = []cluster.Member{
		{Name: "a", Version: "v1", Address: "10.0.0.1:15020", Compat: "c", Ready: true, Since: at, Self: true, State: telemetry.MemberAlive},
		{Name: "b", Version: "v2", Address: "10.0.0.2:15020", Compat: "d", Draining: true, Since: at, State: telemetry.MemberUnusable, Problem: "another compat"},
	}
	r.metrics.Streams[telemetry.SotW].Add(4)
	r.metrics.Streams[telemetry.REST].Add(1)
	var got list[sources.Member]
	r.get("/members", &got)
	want := []sources.Member{
		{Member: r.shown.members[0], Load: &sources.Load{KeysOwned: 1, KeysFollowed: 2, KeysDirect: 3, Streams: 5}},
		{Member: r.shown.members[1]},
	}
	if !reflect.DeepEqual(got.Items, want) {
		t.Fatalf("%+v", got)
	}
	if body := string(r.want(200, "GET", "/members/b/keys", nil).body); body != "/members/b/keys of a member" {
		t.Error(body)
	}
}

// A member needs no token, and reads values only.
func TestMembersRead(t *testing.T) {
	token := write(t, "token", "secret")
	r := newServer(t, func(o *Options) { o.Config.TokenFile, o.Members = token, o.Keys.(*fakeRelay) })
	r.shown.members = []cluster.Member{{Name: "me", Self: true}}
	reader := &memberread.Reader{Cluster: r.shown, Local: r.Handler}
	for path, want := range map[string]int{"/keys": 200, "/keys?format=yaml": 200, "/keys/a%2Fb": 404, "/keys?no=1": 400,
		"/metrics": 404, "/events": 404, "/debug/pprof/heap": 404, "/members/me/keys": 404, "/ui/fleet": 404, "/reload": 405} {
		w := httptest.NewRecorder()
		reader.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/members/me"+path, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

package admin

import (
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"xdsrelay/internal/admin/memberread"
	"xdsrelay/internal/admin/sources"
	"xdsrelay/internal/cluster"
	"xdsrelay/internal/telemetry"
)

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
		{Name: "a", Self: true, State: "alive", Ready: true, Version: "v1", Address: "10.0.0.1:15020", Compat: "c", Since: at,
			Load: &sources.Load{KeysOwned: 1, KeysFollowed: 2, KeysDirect: 3, Streams: 5}},
		{Name: "b", State: "unusable", Problem: "another compat", Draining: true, Version: "v2", Address: "10.0.0.2:15020", Compat: "d", Since: at},
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

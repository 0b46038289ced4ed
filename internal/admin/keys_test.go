package admin

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/fanout/inspect"
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
		keys := []string{}
		var total int
		for token := ""; ; { // page by page
			var got struct {
				list[keystatus.Key]
				Total int
			}
			r.get("/keys?limit=1&page_token="+token+"&"+query, &got)
			for _, k := range got.Items {
				keys = append(keys, k.Key)
			}
			if total, token = got.Total, got.Next; token == "" {
				break
			}
		}
		if fmt.Sprint(keys) != want || total != len(keys) {
			t.Errorf("%s: %v of %d, want %s", query, keys, total, want)
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

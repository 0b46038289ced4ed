package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"xdsrelay/internal/admin/keystatus"
	"xdsrelay/internal/fanout/inspect"
)

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

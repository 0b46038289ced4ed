package orchestrator

import (
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

const vhds = xds.VHostType

// cut makes a resource as if cut out of an origin's response.
func cut(t testing.TB, typ xds.TypeURL, r *discoveryv3.Resource) *xds.ParsedResource {
	t.Helper()
	wire, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{TypeUrl: string(typ), Nonce: "n", Resources: []*discoveryv3.Resource{r}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := xds.ParseResponse(xds.Delta, wire)
	if err != nil {
		t.Fatal(err)
	}
	return &got.Resources[0]
}

// goes returns a resource with aliases.
func goes(t testing.TB, typ xds.TypeURL, name, value string, aliases ...string) *xds.Resource {
	t.Helper()
	return cut(t, typ, &discoveryv3.Resource{Name: name, Aliases: aliases, Resource: anyOf(t, resource(t, typ, name, value))}).Take(xds.TypeOf(typ), nil)
}

// cannot hands over that the origin cannot resolve the aliases.
func (f *feed) cannot(t testing.TB, typ xds.TypeURL, aliases ...string) {
	t.Helper()
	word, _ := cut(t, typ, &discoveryv3.Resource{Name: aliases[0], Aliases: aliases}).TakeUnresolved(xds.NewNameSet(aliases...))
	f.hand(t, snapshot.Update{Type: typ, Origin: "origin", Unresolved: []xds.Unresolved{word}, Received: time.Now()})
}

// again returns the names in the last resubscription at the origin.
func (f *feed) again(typ xds.TypeURL) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.interests[len(f.interests)-1].Of(typ).Again
}

// A client that subscribes by an alias or a glob is woken by changes of matching resources, and by
// their removal. Other clients are not woken.
func TestP26_WakesClientsThatSubscribeByAlias(t *testing.T) {
	bubble(t, nil, func(w *registryFixture) {
		a, b, g := w.join("web", vhds).want("r/a"), w.join("web", vhds).want("r/b"), w.join("web", vhds).want("xdstp://o/T/c/*")
		f := w.feed("web")
		synctest.Wait()
		equal(t, "requested", f.requested(vhds), "r/a r/b xdstp://o/T/c/*")
		woken := func(what string, ofA, ofB, ofG bool) {
			t.Helper()
			for which, c := range map[string]struct {
				c    *testClient
				want bool
			}{"a": {a, ofA}, "b": {b, ofB}, "the glob": {g, ofG}} {
				if n := c.c.woken(); n > 1 || (n == 1) != c.want {
					t.Errorf("%s: %s is woken %d times", what, which, n)
				}
			}
		}
		a.woken()
		b.woken()
		g.woken()
		f.bring(t, vhds, false, goes(t, vhds, "r/v", "1", "r/a", "r/c"))
		woken("it comes", true, false, false)
		f.bring(t, vhds, false, goes(t, vhds, "r/v", "2", "r/a", "r/c"))
		woken("it changes", true, false, false)
		f.bring(t, vhds, false, goes(t, vhds, "r/v", "2", "r/a", "r/c"))
		woken("it is said again", false, false, false)
		f.bring(t, vhds, false, goes(t, vhds, "r/v", "2", "r/b"))
		woken("it goes by another", true, true, false)
		f.update(t, vhds, false, "r/v")
		woken("it goes", false, true, false)
		f.bring(t, vhds, false, resource(t, vhds, "xdstp://o/T/c/x", "1"))
		woken("a subscriber comes", false, false, true)
		f.update(t, vhds, false, "xdstp://o/T/c/x")
		woken("the last subscriber goes", false, false, true)
		f.cannot(t, vhds, "r/a", "r/b")
		woken("what cannot be resolved", true, true, false)
		a.Resubscribe([]string{"r/a"})
		woken("it is requested again", false, false, false)
		f.cannot(t, vhds, "r/a")
		woken("it cannot be resolved again", true, false, false)
	})
}

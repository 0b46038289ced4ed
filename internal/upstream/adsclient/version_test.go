package adsclient

import (
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"xdsrelay/internal/xds"
)

// What a response has under a new version counts as pushed, changed or not: in delta the resource's
// version, in SotW version_info. In an answer to a new stream nothing does.
func TestP15_Pushed(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a", "b"))
		r.flush()
		pushed := func(want, version string, resources ...res) {
			t.Helper()
			r.respond(resp{Type: eds, Version: version, Resources: resources})
			if got := strings.Join(r.last().Pushed, " "); got != want {
				t.Errorf("pushed %q, want %q", got, want)
			}
		}
		is := func(sotw, delta string) string {
			if v == xds.Delta {
				return delta
			}
			return sotw
		}
		a, b := res{Name: "a", Version: "1"}, res{Name: "b", Version: "1"}
		a2, b2 := res{Name: "a", Version: "2"}, res{Name: "b", Content: "2", Version: "2"}
		pushed("", "1", a, b)                         // the answer to the new stream
		pushed("", "1", a, b)                         // the same again
		pushed(is("a b", "a"), "2", a2, b)            // equal
		pushed(is("a b", "b"), "3", a2, b2)           // changed
		pushed(is("a", "a"), "4", a)                  // the others are not in it
		pushed("", "4", res{Name: "a", Version: "1"}) // the same again
		r.respond(resp{Type: eds, Version: "5", Resources: clusters("a", "a")})
		pushed(is("a", ""), "5", a) // what was NACKed does not count
		r.connect()
		r.flush()
		pushed("", "6", a2, b)
		pushed(is("a b", "b"), "7", a2, b2)
	})
}

// Equal resources are sent to clients again if the origin renews a lease, or if a delta origin
// sends a resource under a new version whose subscriber in the client may be new (P33).
func TestP33_SentAgain(t *testing.T) {
	lease, err := anypb.New(&endpointv3.ClusterLoadAssignment{ClusterName: "a", Policy: &endpointv3.ClusterLoadAssignment_Policy{EndpointStaleAfter: durationpb.New(time.Minute)}})
	if err != nil {
		t.Fatal(err)
	}
	none, err := anypb.New(&endpointv3.ClusterLoadAssignment{ClusterName: "a", Policy: &endpointv3.ClusterLoadAssignment_Policy{WeightedPriorityHealth: true}})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		typ                   xds.TypeURL
		any                   *anypb.Any
		sameVersion, newDelta bool // sent again under the same version; by delta under a new one
	}{
		"lease":          {eds, lease, true, true},
		"no lease":       {eds, none, false, false},
		"Secret":         {xds.SecretType, nil, false, true},
		"extension":      {xds.ExtensionType, nil, false, true},
		"LbEndpoint":     {xds.LbEndpointType, nil, false, true},
		"another Secret": {"other/envoy.extensions.transport_sockets.tls.v3.Secret", nil, false, true},
		"route":          {rds, nil, false, false},
	} {
		eachVariant(t, func(t *testing.T, v xds.Variant) {
			r := newProtocolFixture(t, v)
			r.want(named(c.typ, "a"))
			r.flush()
			again := func(want bool, version string) {
				t.Helper()
				before := r.sink.Newest(c.typ).Resource("a")
				r.respond(resp{Type: c.typ, Version: version, Resources: []res{{Name: "a", Version: version, Any: c.any}}})
				now := r.sink.Newest(c.typ).Resource("a")
				if before.Same(now) == want {
					t.Errorf("%s: version %s is sent again: %v, want %v", what, version, !want, want)
				}
				if now.Version != before.Version || !now.SharesBody(before) {
					t.Errorf("%s: the content is another one", what)
				}
			}
			r.respond(resp{Type: c.typ, Version: "1", Resources: []res{{Name: "a", Version: "1", Any: c.any}}})
			again(c.sameVersion, "1")
			again(c.sameVersion || c.newDelta && v == xds.Delta, "2")
			again(c.sameVersion, "2")
			r.connect()
			r.flush()
			again(false, "3")
			again(c.sameVersion, "3")
		})
	}
}

// The version is that of the newest response, or none if that one has none.
func TestP61_VersionOfTheNewestResponse(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a", "b"))
		r.flush()
		given := func(want string) {
			t.Helper()
			if got := r.sink.Newest(eds).OriginVersion(); got != want {
				t.Fatalf("version %q, want %q", got, want)
			}
		}
		r.respond(resp{Type: eds, Version: "7", Resources: []res{{Name: "a"}}})
		given("7")
		r.respond(resp{Type: eds, Resources: []res{{Name: "a", Content: "2"}}})
		given("")
		r.respond(resp{Type: eds, Version: "8", Resources: []res{{Name: "a", Content: "2"}}})
		given("8")
	})
}

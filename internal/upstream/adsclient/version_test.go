package adsclient

import (
	"strings"
	"testing"

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

// The version is that of the newest response, or none if that one has none.
func TestP61_VersionOfTheNewestResponse(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a", "b"))
		r.flush()
		given := func(want string) {
			t.Helper()
			if got := r.sink.Held(eds).OriginVersion(); got != want {
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

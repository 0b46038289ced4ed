package adsclient

import (
	"testing"

	"xdsrelay/internal/xds"
)

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

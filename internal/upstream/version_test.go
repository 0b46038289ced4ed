package upstream

import (
	"testing"

	"xdsrelay/internal/xds"
)

// The version is that of the newest response, and none if that has none.
func TestP61_VersionOfTheNewestResponse(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newProtocolFixture(t, v)
		r.want(named(eds, "a", "b"))
		r.flush()
		given := func(want string) {
			t.Helper()
			if got := r.sink.Held(eds).Given(); got != want {
				t.Fatalf("version %q, want %q", got, want)
			}
		}
		r.respond(resp{typ: eds, version: "7", res: []res{{name: "a"}}})
		given("7")
		r.respond(resp{typ: eds, res: []res{{name: "a", content: "2"}}})
		given("")
		r.respond(resp{typ: eds, version: "8", res: []res{{name: "a", content: "2"}}})
		given("8")
	})
}

package session

import (
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// theirs makes the client one that is given the origin's versions.
func (w *sessionFixture) theirs() {
	w.timely()
	w.s.form.OriginVersions = true
}

// With "versions: origin" a delta resource has the origin's own version, or that of its
// content if the origin gave none (P61).
func TestP61_OriginVersions(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	w.theirs()
	w.Apply(snapshot.Update{Origin: "o", Wildcard: true, Changed: []*xds.Resource{w.With("a", "7", ttl), w.With("b", "", 0)}})
	w.sub("*")
	w.want("a b")
	w.wantWire(sent{"a", "7", ttl, true, true}, sent{"b", w.Cur.Resource("b").Version.String(), 0, true, true})
	w.ack()

	// Equal content under another version is no change, also if another origin gave it. A
	// heartbeat has the version that the client was given. Later clients are sent that
	// version too.
	w.Apply(snapshot.Update{Origin: "other", Wildcard: true, Changed: []*xds.Resource{w.With("a", "8", ttl)}})
	w.want("~a")
	w.wantWire(sent{"a", "7", ttl, false, true})
	w.ack()
	w.want("")
	w.s = newSession(w.Type, xds.Delta)
	w.theirs()
	w.send(request{names: []string{"*"}, initial: map[string]string{"a": "7", "b": "8"}})
	w.accepts("b ~a")

	// Other content has its own version.
	w.Apply(snapshot.Update{Origin: "other", Wildcard: true, Changed: []*xds.Resource{w.With("a=2", "9", ttl)}})
	w.want("a=2")
	w.wantWire(sent{"a", "9", ttl, true, true})
	w.ack()

	// What a client already has is compared with what was sent (P27).
	for version, want := range map[string]string{"9": "b ~a", "8": "a=2 b", w.Cur.Resource("a").Version.String(): "a=2 b"} {
		w.s = newSession(w.Type, xds.Delta)
		w.theirs()
		w.send(request{names: []string{"*"}, initial: map[string]string{"a": version}})
		w.want(want)
	}
}

// Another origin may give the same version to other content. With several origins a version
// includes the content's as well. So a client that moves from one to the other over a
// reconnect is sent what differs (P27).
func TestP61_VersionsOfSeveralOrigins(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	start := func(brought string) {
		w.s = newSession(w.Type, xds.Delta)
		w.theirs()
		w.s.form.SeveralOrigins = true
		w.send(request{names: []string{"*"}, initial: map[string]string{"a": brought}})
	}
	w.Apply(snapshot.Update{Origin: "b", Wildcard: true, Changed: []*xds.Resource{w.With("a", "5", 0), w.With("b", "", 0)}})
	start("")
	w.want("a b")
	took := "5/" + w.Cur.Resource("a").Version.String()
	w.wantWire(sent{"a", took, 0, true, true}, sent{"b", w.Cur.Resource("b").Version.String(), 0, true, true})
	start(took)
	w.want("b")
	w.Apply(snapshot.Update{Origin: "a", Wildcard: true, Changed: []*xds.Resource{w.With("a=2", "5", 0)}})
	start(took)
	w.want("a=2 b")
	start("5") // from when there was one origin
	w.want("a=2 b")
}

// Otherwise versions are made from the content, whatever the origin gives (P61).
func TestP61_ContentVersions(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	w.Apply(snapshot.Update{Origin: "o", Wildcard: true, Changed: []*xds.Resource{w.With("a", "7", 0)}})
	w.sub("*")
	w.want("a")
	w.wantWire(sent{"a", w.Resource("a").Version.String(), 0, true, true})
	w.s = newSession(w.Type, xds.Delta)
	w.send(request{names: []string{"*"}, initial: map[string]string{"a": "7"}})
	w.want("a")
}

const thing xds.TypeURL = "type.googleapis.com/acme.Thing"

// A resource without a name is like any other, in both variants (P3).
func TestP3_EmptyName(t *testing.T) {
	each(t, thing, func(w *sessionFixture) {
		w.sub()
		w.wild("=2", "a")
		w.accepts("=2 a")
		w.wild("=33")
		w.rejects(w.either("=33 a", "=33"))
		w.want("")
		w.wild("-")
		w.accepts(w.either("a", "-"))
		w.wild("=2")
		w.want(w.either("=2 a", "=2"))
	})
}

// Resources that are told apart by their place are for SotW clients. A delta client keeps what it
// has until the origin names its resources again, and is not shown as in step (P3).
func TestP3_Places(t *testing.T) {
	first, second := xds.PlacePrefix+"000000", xds.PlacePrefix+"000001"
	each(t, thing, func(w *sessionFixture) {
		delta := w.s.form.Variant == xds.Delta
		w.wild("a")
		w.sub()
		w.accepts("a")
		w.wild("-a", first, second+"=2")
		if w.want(w.either(first+" "+second+"=2", "")); !delta {
			w.ack()
		}
		look := NewComparisonCache()
		if unsent := look.Unsent(w.s, w.Cur); unsent != delta {
			t.Errorf("%s: a version is unsent: %v", w.s.form.Variant, unsent)
		}
		w.sub()
		w.want("")
		w.wild("b", "-"+first, "-"+second)
		w.accepts(w.either("b", "b -a"))
		if look = NewComparisonCache(); look.Unsent(w.s, w.Cur) {
			t.Errorf("%s: a version is unsent", w.s.form.Variant)
		}
	})
	// A client that asks by name has nothing to do with the wildcard's resources.
	w := newSessionFixture(t, thing, xds.Delta)
	w.sub("a")
	w.named("a")
	w.wild(first, second)
	w.want("a")
}

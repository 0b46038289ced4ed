package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// theirs makes the client one that is given the origin's versions.
func (w *sessionFixture) theirs() {
	w.timely()
	w.s.form.OriginVersions = true
}

// With versions: origin an incremental resource bears the origin's own version,
// and where the origin gave none that of its content.
func TestP61_TheOriginsVersions(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	w.theirs()
	w.Apply(xds.Update{Origin: "o", Wildcard: true, Changed: []*xds.Resource{w.With("a", "7", ttl), w.With("b", "", 0)}})
	w.sub("*")
	w.want("a b")
	w.wantWire(sent{"a", "7", ttl, true, true}, sent{"b", w.Cur.Held("b").Version.String(), 0, true, true})
	w.ack()

	// Equal content under another version, be it another origin's, is no change;
	// a heartbeat bears what the client was given, and so does what is sent to
	// those who come later.
	w.Apply(xds.Update{Origin: "other", Wildcard: true, Changed: []*xds.Resource{w.With("a", "8", ttl)}})
	w.want("~a")
	w.wantWire(sent{"a", "7", ttl, false, true})
	w.ack()
	w.want("")
	w.s = newSession(w.Type, xds.Delta)
	w.theirs()
	w.send(request{names: []string{"*"}, initial: map[string]string{"a": "7", "b": "8"}})
	w.want("b ~a")
	w.ack()

	// Another content comes under its own.
	w.Apply(xds.Update{Origin: "other", Wildcard: true, Changed: []*xds.Resource{w.With("a=2", "9", ttl)}})
	w.want("a=2")
	w.wantWire(sent{"a", "9", ttl, true, true})
	w.ack()

	// What comes back is compared with what was sent (P27).
	for version, want := range map[string]string{"9": "b ~a", "8": "a=2 b", w.Cur.Held("a").Version.String(): "a=2 b"} {
		w.s = newSession(w.Type, xds.Delta)
		w.theirs()
		w.send(request{names: []string{"*"}, initial: map[string]string{"a": version}})
		w.want(want)
	}
}

// Another origin may give the same version to another content: of several, a
// version says the content as well, so that who changes from one to the other over
// a reconnect is sent what is other there (P27).
func TestP61_VersionsOfSeveralOrigins(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	start := func(brought string) {
		w.s = newSession(w.Type, xds.Delta)
		w.theirs()
		w.s.form.SeveralOrigins = true
		w.send(request{names: []string{"*"}, initial: map[string]string{"a": brought}})
	}
	w.Apply(xds.Update{Origin: "b", Wildcard: true, Changed: []*xds.Resource{w.With("a", "5", 0), w.With("b", "", 0)}})
	start("")
	w.want("a b")
	took := "5/" + w.Cur.Held("a").Version.String()
	w.wantWire(sent{"a", took, 0, true, true}, sent{"b", w.Cur.Held("b").Version.String(), 0, true, true})
	start(took)
	w.want("b")
	w.Apply(xds.Update{Origin: "a", Wildcard: true, Changed: []*xds.Resource{w.With("a=2", "5", 0)}})
	start(took)
	w.want("a=2 b")
	start("5") // of a time with one origin
	w.want("a=2 b")
}

// A response bears the version of the snapshot that is sent: the origin's
// newest, or where it gave none that of the set.
func TestP61_TheSnapshotsVersion(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.Apply(xds.Update{Origin: "o", Wildcard: true, Changed: []*xds.Resource{w.Resource("a")}})
		w.sub()
		w.want("a")
		if version, _ := w.wire(); version != w.Cur.Version || version == "" {
			t.Errorf("version %q, want the set's, %q", version, w.Cur.Version)
		}
		w.ack()
		w.Apply(xds.Update{Origin: "o", Wildcard: true, Version: "v1", Changed: []*xds.Resource{w.Resource("a=2")}})
		w.want("a=2")
		if version, _ := w.wire(); version != "v1" {
			t.Errorf("version %q, want the origin's, v1", version)
		}
	})
}

// Otherwise it is made from the content, whatever the origin gives.
func TestP61_ContentVersions(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	w.Apply(xds.Update{Origin: "o", Wildcard: true, Changed: []*xds.Resource{w.With("a", "7", 0)}})
	w.sub("*")
	w.want("a")
	w.wantWire(sent{"a", w.Resource("a").Version.String(), 0, true, true})
	w.s = newSession(w.Type, xds.Delta)
	w.send(request{names: []string{"*"}, initial: map[string]string{"a": "7"}})
	w.want("a")
}

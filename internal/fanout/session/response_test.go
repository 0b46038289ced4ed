package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

func TestP30_FullState(t *testing.T) {
	for _, url := range []xds.TypeURL{xds.ClusterType, xds.ListenerType, xds.ScopedType} {
		w := newSessionFixture(t, url, xds.SotW)
		w.wild("a", "b")
		w.sub()
		w.want("a b")
		w.ack()
		w.wild("c")
		w.want("a b c")
		w.ack()
		w.wild("-a")
		w.want("b c")
		w.ack()
		w.wild("-b", "-c")
		w.want("(empty)")
	}
	// Any type under a wildcard.
	w := newSessionFixture(t, "type.googleapis.com/acme.Thing", xds.SotW)
	w.wild("a", "b")
	w.sub()
	w.want("a b")
	w.ack()
	w.wild("a=2")
	w.want("a=2 b")
	// Beside a name, too, the wildcard is waited for: what is missing is gone.
	w = newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.named("a")
	w.sub("*", "a")
	w.want("")
	w.wild("a", "b")
	w.want("a b")
	// Of names, all that the stream asked for.
	w = newSessionFixture(t, xds.ListenerType, xds.SotW)
	w.named("a", "b", "other")
	w.sub("a", "b")
	w.want("a b")
	w.ack("a", "b")
	w.named("other=2")
	w.want("")
	w.named("-a")
	w.want("b")
}

func TestP31_OtherTypes(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.SotW)
	w.named("a", "b", "c")
	w.sub("a", "b")
	w.want("a b")
	w.ack("a", "b")
	w.named("b=2", "c=2")
	w.want("b=2")
	w.ack("a", "b")
	w.named("-a")
	w.want("") // a removal sends nothing
}

func TestP32_Delta(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b", "c")
	w.sub()
	w.want("a b c")
	w.ack()
	w.wild("b=2", "-c")
	w.want("b=2 -c")
}

func TestP33_NothingChanged(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.wild("a")
		w.sub()
		w.want("a")
		w.ack()
		u := xds.Update{Type: w.Type.URL, Origin: "o", Version: "v2", Wildcard: true, Changed: []*xds.Resource{w.Resource("a")}}
		w.Builder.Apply(u) // equal content under a new version
		w.Cur, _ = w.Builder.Snapshot(w.Cur, 9)
		w.want("")
		w.wild("b")
		w.wild("-b") // gone and back between two sends
		w.want("")
		w.wild("-a")
		if got := w.next(); got != "-a" && got != "(empty)" {
			t.Fatalf("the removal sends %q", got)
		}
		w.ack()
		w.wild("a") // new when it returns
		w.want("a")
	})
}

func TestP34_NothingWithheld(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.named("a")
		w.sub("a", "b", "c")
		w.want("a")
		w.ack("a", "b", "c")
		w.named("b")
		if got := w.next(); got != "b" && got != "a b" {
			t.Fatalf("sends %q", got)
		}
	})
}

func TestP37_LoadAssignmentFollows(t *testing.T) {
	each(t, xds.EndpointType, func(eds *sessionFixture) {
		cds := newSessionFixture(t, xds.ClusterType, eds.s.form.Variant)
		cds.wild("a", "b")
		cds.sub()
		if got := cds.next(); got != "a b" || len(cds.follow) != 2 {
			t.Fatalf("sends %q, followed by %v", got, cds.follow)
		}
		cds.ack()
		eds.named("a", "b", "c")
		eds.sub("a", "b")
		eds.want("a b")
		eds.ack("a", "b")
		cds.wild("b=2", "c")
		if got := cds.next(); got == "" || len(cds.follow) != 2 {
			t.Fatalf("followed by %v, want those of b and c", cds.follow)
		}
		if !eds.s.Refresh(cds.follow) {
			t.Fatal("nothing follows")
		}
		eds.want("b") // unchanged, and c is not subscribed
		eds.ack("a", "b")
		eds.want("")
	})
}

package session

import (
	"slices"
	"testing"

	"xdsrelay/internal/xds"
)

// A client that asks for a resource by any of its aliases is sent it under its own name, with
// its changes and its removal. Then the alias is absent as well (P26).
func TestP26_ByAlias(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.sub("b")
		w.want("")
		w.named("n|a|b", "other|c")
		w.accepts("n")
		w.named("n|a|b=2", "other|c=2")
		w.accepts("n=2")
		w.named("-n")
		w.accepts(w.either("(empty)", "-b -n"))
		w.named("m|b")
		w.accepts("m")
		w.want("")
	})
}

// What was subscribed by one of its names is unsubscribed by any other name that identifies it.
// What else that name leads to stays subscribed (P26).
func TestP26_UnsubscribeByAnyName(t *testing.T) {
	for _, c := range []struct{ name, sub, unsub string }{
		{"by the alias", "a", "a"}, {"by the name", "a", "n"}, {"by another alias", "a", "b"}, {"of the name by an alias", "n", "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newSessionFixture(t, xds.EndpointType, xds.Delta)
			w.named("n|a|b")
			w.sub(c.sub)
			w.accepts("n")
			w.unsub(c.unsub)
			w.want("")
			if w.s.sub.effective.Names.Len() != 0 {
				t.Fatalf("asks for %v", slices.Collect(w.s.sub.effective.Names.All()))
			}
			w.named("n|a|b=2")
			w.want("")
		})
	}
	t.Run("sent ahead", func(t *testing.T) {
		w := newSessionFixture(t, xds.EndpointType, xds.Delta)
		w.named("x")
		w.sub("x")
		w.want("x")
		w.named("n|a|b")
		w.sub("a")
		w.want("n") // x is not acknowledged
		w.unsub("b")
		if w.s.sub.effective.Names.Has("a") {
			t.Fatal("still asks for a")
		}
	})
	t.Run("an alias of two stays", func(t *testing.T) {
		w := newSessionFixture(t, xds.EndpointType, xds.Delta)
		w.named("n|a", "m|a")
		w.sub("a")
		w.accepts("m n")
		w.unsub("n")
		w.named("m|a=2")
		w.want("m=2")
	})
	t.Run("a glob stays", func(t *testing.T) {
		w := newSessionFixture(t, xds.EndpointType, xds.Delta)
		w.named("xdstp://o/T/c/x")
		w.sub("xdstp://o/T/c/*")
		w.accepts("xdstp://o/T/c/x")
		w.unsub("xdstp://o/T/c/x")
		w.named("xdstp://o/T/c/x@2")
		w.want("xdstp://o/T/c/x@2")
	})
	t.Run("what was never sent is ignored", func(t *testing.T) {
		w := newSessionFixture(t, xds.EndpointType, xds.Delta)
		w.sub("a")
		w.unsub("n")
		w.named("n|a")
		w.want("n")
	})
}

// The answer to an alias does not wait for an ACK (P19), and is not repeated.
func TestP26_BeforeACK(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("x")
	w.sub("x")
	w.want("x")
	w.sub("a")
	w.want("")
	w.named("n|a", "x=2")
	w.accepts("n")
	w.send(request{ack: 1})
	w.accepts("x=2")
	w.named("-n")
	w.want("-a -n")
}

// When anything of a rejected response changes, all of it is sent again, also what was sent for
// an alias (P15).
func TestP15_NACKedByAlias(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("n|a", "m|b", "x")
	w.sub("a", "b", "x")
	w.rejects("m n x")
	w.want("")
	w.named("x=2")
	w.accepts("m n x=2")
	w.named("-n", "m|b=2")
	w.rejects("m=2 -a -n")
	w.named("m|b=33")
	w.accepts("m=33 -a -n")
	w.named("m|b=2")
	w.want("m=2")
}

// Reconnecting by alias: what the client has is not sent again, what changed is sent, and what
// is gone is removed, under whatever name (P27).
func TestP27_ReconnectByAlias(t *testing.T) {
	version := func(w *sessionFixture, spec string) string { return w.Resource(spec).Version.String() }
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.named("r/v|r/a", "r/w|r/b=2")
	w.send(request{names: []string{"r/a", "r/b", "r/c"}, initial: map[string]string{
		"r/v": version(w, "r/v|r/a"), "r/w": version(w, "r/w|r/b"), "r/x": "1",
	}})
	w.accepts("r/w=2") // r/c may lead to r/x
	w.named("-r/c")
	w.accepts("-r/c -r/x")
	w.sub("r/a")
	w.want("r/v")

	// A name that is asked for again before it was answered is sent (P23).
	w = newSessionFixture(t, xds.VHostType, xds.Delta)
	w.send(request{names: []string{"r/a"}, initial: map[string]string{"r/v": version(w, "r/v|r/a")}})
	w.sub("r/a")
	w.named("r/v|r/a")
	w.want("r/v")
}

const collection = "xdstp://o/T/c/*"

// A glob is the collection of the names that differ in the last segment only, with the same
// parameters. An empty collection is answered by its own name (P28).
func TestP28_Globs(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.sub(collection)
		w.named("-" + collection)
		w.accepts(w.either("(empty)", "-"+collection))
		w.named("xdstp://o/T/c/x", "xdstp://o/T/c/y", "xdstp://o/T/c/d/z", "xdstp://o/T/z", "xdstp://o/T/c/p?a=1")
		w.accepts("xdstp://o/T/c/x xdstp://o/T/c/y")
		w.named("xdstp://o/T/c/y@2", "-xdstp://o/T/c/x")
		if w.s.form.Variant == xds.SotW {
			w.accepts("xdstp://o/T/c/y@2")
			w.named("-xdstp://o/T/c/y")
			w.want("(empty)")
			return
		}
		w.accepts("xdstp://o/T/c/y@2 -xdstp://o/T/c/x")
		w.named("-xdstp://o/T/c/y")
		w.accepts("-" + collection + " -xdstp://o/T/c/y")
		w.sub("xdstp://o/T/c/*?a=1") // before the parameters
		w.want("xdstp://o/T/c/p?a=1")
	})
	// A response of other types holds only the changed members.
	w := newSessionFixture(t, xds.EndpointType, xds.SotW)
	w.named("xdstp://o/T/c/x", "xdstp://o/T/c/y")
	w.sub(collection)
	w.accepts("xdstp://o/T/c/x xdstp://o/T/c/y")
	w.named("xdstp://o/T/c/y@2")
	w.want("xdstp://o/T/c/y@2")
}

// That an origin cannot resolve an alias is sent once to the clients that asked. It is no
// resource: for a client that asks later, or again, the origin is asked again (P18).
func TestP18_UnresolvedAliasIsPassedOn(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.sub("r/a", "r/b", "r/c")
	w.named("?r/a|r/b")
	w.accepts("?r/a") // one answer for both
	w.want("")
	w.named("r/x")
	w.want("")
	// The answer was for the clients that had asked before. This one asks again.
	w.sub("r/a")
	if !slices.Equal(w.again, []string{"r/a"}) {
		t.Fatalf("asks again for %v", w.again)
	}
	w.want("")
	w.named() // the group has noted the request
	w.want("")
	w.named("?r/a")
	w.accepts("?r/a")
	// This time it is there.
	w.sub("r/a")
	w.named("r/v|r/a")
	w.accepts("r/v")
	// Or it is not there, and the origin reports it as removed.
	w.sub("r/b")
	w.named("-r/b")
	w.accepts("-r/b")
	w.named("?r/c")
	w.accepts("?r/c")
	w.named("-r/c") // known already
	w.want("")
}

// A client that was sent this answer is not sent it again because another client asked. A
// client that asks after the answer waits for the next one (P18).
func TestP18_UnresolvedAliasOfAnother(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.sub("r/a")
	w.named("?r/a")
	w.accepts("?r/a")
	other := w.another()
	other.sub("r/a")
	other.want("")
	if !slices.Equal(other.again, []string{"r/a"}) {
		t.Fatalf("asks again for %v", other.again)
	}
	third := w.another()
	third.Cur = nil
	w.named()
	other.Cur, third.Cur = w.Cur, w.Cur
	other.want("")
	third.sub("r/a") // the origin has been asked since
	if len(third.again) != 0 {
		t.Fatalf("asks again for %v", third.again)
	}
	third.want("")
	w.named("?r/a")
	other.Cur, third.Cur = w.Cur, w.Cur
	w.want("")
	other.want("?r/a")
	third.want("?r/a")
}

// The answer does not wait for an ACK (P19), and is sent once.
func TestP18_UnresolvedAliasBeforeACK(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.named("x")
	w.sub("x")
	w.want("x")
	w.sub("r/a")
	w.named("?r/a")
	w.accepts("?r/a")
	w.want("")
	w.named("x=2")
	w.want("x=2")
}

// SotW cannot express it: the alias counts as an absent name (P18).
func TestP18_UnresolvedInStateOfTheWorld(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.SotW)
	w.sub("a")
	w.named("?a")
	w.want("")
	w = newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.sub("a")
	w.named("?a")
	w.want("(empty)")
}

// VHDS as Envoy uses it: it asks by the name of the route and the host of a request. That is
// the resource's name or one of its aliases (P26).
func TestP26_VirtualHostByRouteAndHost(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.wild()
	w.sub()
	w.accepts("(empty)")
	w.sub("route/a.example")
	w.want("")
	w.named("route/vhost|route/a.example|route/b.example")
	w.accepts("route/vhost")
	w.sub("route/b.example") // held already
	w.accepts("route/vhost")
	w.sub("route/vhost")
	w.accepts("route/vhost")
	w.named("route/vhost|route/a.example|route/b.example=2")
	w.want("route/vhost=2")
}

// Beside the wildcard, what is unsubscribed by an alias is answered: by the resource, if the
// wildcard covers it, or by its removal (P24).
func TestP26_UnsubscribedBesideTheWildcard(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("n|a")
	w.sub("*", "a")
	w.accepts("n")
	w.unsub("a")
	w.accepts("n")

	w = newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("x")
	w.sub("*", "a", "c")
	w.named("n|a")
	w.accepts("n x")
	w.unsub("a", "c")
	w.want("-a -c -n")
}

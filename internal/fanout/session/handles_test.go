package session

import (
	"slices"
	"testing"

	"xdsrelay/internal/xds"
)

// A resource is given to who asks for it by any of its aliases, under its own
// name, and so are its changes and its end. The alias then is absent as well.
func TestP26_ByAlias(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.sub("b")
		w.want("")
		w.named("n|a|b", "other|c")
		w.want("n")
		w.ack("b")
		w.named("n|a|b=2", "other|c=2")
		w.want("n=2")
		w.ack("b")
		w.named("-n")
		if w.s.form.Variant == xds.SotW {
			w.want("(empty)")
		} else {
			w.want("-b -n")
		}
		w.ack("b")
		w.named("m|b")
		w.want("m")
		w.ack("b")
		w.want("")
	})
}

// A new listing is answered from what is held, also by an alias (P22, P23).
func TestP26_NewAliasOfAHeldResource(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("n|a|b", "m|c")
		w.sub("a")
		w.want("n")
		w.ack("a")
		switch w.s.form.Variant {
		case xds.Delta:
			w.sub("a") // again
			w.want("n")
			w.ack()
			w.sub("c")
		default:
			w.ack("a", "c")
		}
		w.want("m")
	})
}

// An alias that an origin gives to another resource, or takes away, moves or
// removes for those who asked for it, and for nobody else.
func TestP26_AnAliasMoves(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.sub("a", "n")
	w.named("n|a", "m")
	w.want("n")
	w.ack()
	w.named("n=2", "m|a") // one response
	w.want("m n=2")
	w.ack()

	w = newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("n|a|b")
	w.sub("a")
	w.want("n")
	w.ack()
	w.named("-a") // said of the alias, not of the resource
	w.want("-a -n")
	w.ack()
	w.named("n|a|b")
	w.want("n")

	w = newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("n|a|b")
	w.sub("a", "b")
	w.want("n")
	w.ack()
	w.named("-a")
	w.want("-a") // it is still there for b
	w.ack()
	w.named("n|a|b") // the origin says so again
	w.want("")
}

// Two resources may go by one alias.
func TestP26_OneAliasOfTwo(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.named("m|a", "n|a")
		w.sub("a")
		w.want("m n")
		w.ack("a")
		w.named("-m")
		if w.s.form.Variant == xds.SotW {
			w.want("n")
			return
		}
		w.want("-m")
		w.ack()
		w.named("-n")
		w.want("-a -n")
	})
}

// What was subscribed by one of its names is given up by any other that
// identifies it; but not what else a name leads to.
func TestP26_UnsubscribeByAnyName(t *testing.T) {
	for _, c := range []struct{ name, sub, unsub string }{
		{"by the alias", "a", "a"}, {"by the name", "a", "n"}, {"by another alias", "a", "b"}, {"of the name by an alias", "n", "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newSessionFixture(t, xds.EndpointType, xds.Delta)
			w.named("n|a|b")
			w.sub(c.sub)
			w.want("n")
			w.ack()
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
		w.want("m n")
		w.ack()
		w.unsub("n")
		w.named("m|a=2")
		w.want("m=2")
	})
	t.Run("a glob stays", func(t *testing.T) {
		w := newSessionFixture(t, xds.EndpointType, xds.Delta)
		w.named("xdstp://o/T/c/x")
		w.sub("xdstp://o/T/c/*")
		w.want("xdstp://o/T/c/x")
		w.ack()
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

// Absence is answered under the alias, and remembered (P25).
func TestP26_AnAbsentAlias(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.sub("route/a", "route/b")
	w.named("-route/a")
	w.want("-route/a")
	w.ack()
	w.named("route/v|route/a")
	w.want("route/v")
	w.ack()
	// Known to lead somewhere, it is not absent because nothing has its name.
	w.sub("route/a")
	w.want("route/v")
}

// Who asks anew is told what is held, once, by however many names it is asked.
func TestP26_OnceByManyNames(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("n|a|b")
		w.sub("a", "b", "n")
		w.want("n")
		w.ack("a", "b", "n")
		w.named("n|a|b=2")
		w.want("n=2")
	})
}

// The answer to an alias does not wait for an ACK (P19), and is not repeated.
func TestP26_AheadOfAnUnansweredResponse(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("x")
	w.sub("x")
	w.want("x")
	w.sub("a")
	w.want("")
	w.named("n|a", "x=2")
	w.want("n")
	w.ack()
	w.send(request{ack: 1})
	w.want("x=2")
	w.ack()
	w.named("-n")
	w.want("-a -n")
}

// A refused response is repeated as a whole when anything of it changes (P15),
// what came for an alias with the rest.
func TestP15_RefusedByAlias(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("n|a", "m|b", "x")
	w.sub("a", "b", "x")
	w.want("m n x")
	w.nack()
	w.want("")
	w.named("x=2")
	w.want("m n x=2")
	w.ack()
	w.named("-n", "m|b=2")
	w.want("m=2 -a -n")
	w.nack()
	w.named("m|b=33")
	w.want("m=33 -a -n")
	w.ack()
	w.named("m|b=2")
	w.want("m=2")
}

// Reconnecting by alias: what the client has is not sent again, what changed is,
// and what is gone is said, whatever it is called (P27).
func TestP27_ReconnectByAlias(t *testing.T) {
	version := func(w *sessionFixture, spec string) string { return w.Resource(spec).Version.String() }
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.named("r/v|r/a", "r/w|r/b=2")
	w.send(request{names: []string{"r/a", "r/b", "r/c"}, initial: map[string]string{
		"r/v": version(w, "r/v|r/a"), "r/w": version(w, "r/w|r/b"), "r/x": "1",
	}})
	w.want("r/w=2") // r/x may be what r/c leads to
	w.ack()
	w.named("-r/c")
	w.want("-r/c -r/x")
	w.ack()
	w.sub("r/a")
	w.want("r/v")

	// Asked again before it was answered, it is sent even so (P23).
	w = newSessionFixture(t, xds.VHostType, xds.Delta)
	w.send(request{names: []string{"r/a"}, initial: map[string]string{"r/v": version(w, "r/v|r/a")}})
	w.sub("r/a")
	w.named("r/v|r/a")
	w.want("r/v")
}

const collection = "xdstp://o/T/c/*"

// A glob is the collection of what its last segment stands for, with the same
// parameters, and no deeper; an empty one is answered by its own name.
func TestP28_Globs(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.sub(collection)
		w.named("-" + collection)
		if w.s.form.Variant == xds.SotW {
			w.want("(empty)")
		} else {
			w.want("-" + collection)
		}
		w.ack(collection)
		w.named("xdstp://o/T/c/x", "xdstp://o/T/c/y", "xdstp://o/T/c/d/z", "xdstp://o/T/z", "xdstp://o/T/c/p?a=1")
		w.want("xdstp://o/T/c/x xdstp://o/T/c/y")
		w.ack(collection)
		w.named("xdstp://o/T/c/y@2", "-xdstp://o/T/c/x")
		if w.s.form.Variant == xds.SotW {
			w.want("xdstp://o/T/c/y@2")
			w.ack(collection)
			w.named("-xdstp://o/T/c/y")
			w.want("(empty)")
			return
		}
		w.want("xdstp://o/T/c/y@2 -xdstp://o/T/c/x")
		w.ack()
		w.named("-xdstp://o/T/c/y")
		w.want("-" + collection + " -xdstp://o/T/c/y")
		w.ack()
		w.sub("xdstp://o/T/c/*?a=1") // before the parameters
		w.want("xdstp://o/T/c/p?a=1")
	})
	// Of other types a response holds the changed members alone.
	w := newSessionFixture(t, xds.EndpointType, xds.SotW)
	w.named("xdstp://o/T/c/x", "xdstp://o/T/c/y")
	w.sub(collection)
	w.want("xdstp://o/T/c/x xdstp://o/T/c/y")
	w.ack(collection)
	w.named("xdstp://o/T/c/y@2")
	w.want("xdstp://o/T/c/y@2")
}

// What an origin cannot resolve is passed on to who asked, once, and is no
// resource: who asks later, or again, has the origin asked again.
func TestP18_UnresolvedAliasIsPassedOn(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.sub("r/a", "r/b", "r/c")
	w.named("?r/a|r/b")
	w.want("?r/a") // one for both
	w.ack()
	w.want("")
	w.named("r/x")
	w.want("")
	// Again: the word was for those who had asked before.
	w.sub("r/a")
	if !slices.Equal(w.again, []string{"r/a"}) {
		t.Fatalf("asks again for %v", w.again)
	}
	w.want("")
	w.named() // the group has noted it
	w.want("")
	w.named("?r/a")
	w.want("?r/a")
	w.ack()
	// This time it is there.
	w.sub("r/a")
	w.named("r/v|r/a")
	w.want("r/v")
	w.ack()
	// Or it is not, and said otherwise.
	w.sub("r/b")
	w.named("-r/b")
	w.want("-r/b")
	w.ack()
	w.named("?r/c")
	w.want("?r/c")
	w.ack()
	w.named("-r/c") // known already
	w.want("")
}

// Who was told is not told again because another asked; who comes to a word that
// is older than its request waits for the next.
func TestP18_UnresolvedAliasOfAnother(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.sub("r/a")
	w.named("?r/a")
	w.want("?r/a")
	w.ack()
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

// Ahead of an unanswered response, too, and once (P19).
func TestP18_UnresolvedAliasAhead(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.named("x")
	w.sub("x")
	w.want("x")
	w.sub("r/a")
	w.named("?r/a")
	w.want("?r/a")
	w.ack()
	w.want("")
	w.named("x=2")
	w.want("x=2")
}

// In state of the world there is no way to say it: it is as an absent name.
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

// VHDS as Envoy speaks it: the name of the route and the host that a request
// was for, which may be the resource's name or one of its aliases.
func TestP26_VirtualHostByRouteAndHost(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.wild()
	w.sub()
	w.want("(empty)")
	w.ack()
	w.sub("route/a.example")
	w.want("")
	w.named("route/vhost|route/a.example|route/b.example")
	w.want("route/vhost")
	w.ack()
	w.sub("route/b.example") // held already
	w.want("route/vhost")
	w.ack()
	w.sub("route/vhost")
	w.want("route/vhost")
	w.ack()
	w.named("route/vhost|route/a.example|route/b.example=2")
	w.want("route/vhost=2")
}

// Beside the wildcard, what is given up by an alias is answered: by the
// resource, which the wildcard covers, or by its removal (P24).
func TestP26_GivenUpBesideTheWildcard(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("n|a")
	w.sub("*", "a")
	w.want("n")
	w.ack()
	w.unsub("a")
	w.want("n")
	w.ack()

	w = newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("x")
	w.sub("*", "a", "c")
	w.named("n|a")
	w.want("n x")
	w.ack()
	w.unsub("a", "c")
	w.want("-a -c -n")
}

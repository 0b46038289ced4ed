package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// A client has a resource by the wildcard, and asks for its name when it is gone
// from there. It is told that the resource is gone, also if the name is another
// one's alias then.
func TestP26_AskedForWhenItIsGone(t *testing.T) {
	w := newSessionFixture(t, xds.VHostType, xds.Delta)
	w.send(request{names: []string{"n0", "*"}})
	w.wild("n0", "n2")
	w.named("n0")
	w.want("n0 n2")
	w.wild("n0", "-n2")
	w.sub("n2")
	w.ack()
	w.want("-n2")
	w.ack()
	w.wild("n0|n2")
	w.named("n0|n2")
	w.want("n0")
	w.ack()
	w.want("")
}

// So is what it had by the wildcard, and asks for by an alias since, when it ends
// the wildcard before it heard that it is gone from there.
func TestP26_AskedForByAnAliasWhenItIsGone(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.send(request{names: []string{"n0", "*"}})
	w.wild("n0", "n1|a0")
	w.named("n0")
	w.want("n0 n1")
	w.wild("n0", "-n1")
	w.ack()
	w.sub("a0")
	w.unsub("*")
	w.want("")
	w.named("-a0")
	w.want("-a0 -n1")
}

// A name that is given up and led to something that the client let go of is not
// taken for what it has when it asks for it again.
func TestP26_AliasThatMovedBeforeItIsAskedForAgain(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("n0", "x|n2")
		w.sub("n0", "x")
		w.want("n0 x")
		if w.s.form.Variant == xds.SotW {
			w.ack("n0", "a1")
			w.want("")
			w.send(request{names: []string{"n0", "a1", "n2"}})
		} else {
			w.ack()
			w.unsub("x")
			w.sub("a1")
			w.want("")
			w.sub("n2")
		}
		w.named("x|a1", "-n2")
		if w.s.form.Variant == xds.SotW {
			w.want("x")
		} else {
			w.want("x -n2")
		}
	})
}

// Nor one by which it is given something again while a response is on its way.
func TestP26_AliasThatComesBack(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("n0|n2", "n1")
	w.sub("n0")
	w.want("n0")
	w.ack()
	w.sub("n1")
	w.want("n1")
	w.unsub("n0")
	w.named("n2")
	w.named("-n0")
	w.sub("n2")
	w.want("n2")
	w.named("n0|n2")
	w.ack()
	w.want("n0")
}

// What a client brought and asks for once more, before it was answered, is gone
// though its name is another one's alias.
func TestP27_BroughtAndAskedForAgain(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.send(request{names: []string{"n0", "n2"}, initial: map[string]string{"n2": "v"}})
	w.sub("n2")
	w.named("n0|n2", "-n2")
	w.want("n0 -n2")
	w.ack()
	w.want("")
}

// Beside the wildcard a name that is given up, and that the wildcard does not
// have, is answered by the set without it. What it has, or what was not there,
// needs no word.
func TestP22_GivenUpBesideTheWildcard(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.send(request{names: []string{"*", "a", "b", "c"}})
	w.wild("b")
	w.named("a", "-c", "b")
	w.want("a b")
	w.ack("*", "a", "b")
	w.want("")
	w.send(request{names: []string{"*", "a"}, ack: 1})
	w.want("")
	w.send(request{names: []string{"*"}, ack: 1})
	w.want("b")
	w.ack("*")
	w.want("")
}

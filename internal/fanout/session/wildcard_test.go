package session

import (
	"strings"
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// A name beside the wildcard has an answer of its own (P50). What the wildcard leaves out does
// not answer it, and until it is answered nothing is sent for it (P25).
func TestP25_BesideTheWildcard(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) { // CDS: SotW has all
		w.wild("a", "b")
		w.sub("*", "x", "y")
		w.accepts("a b")
		w.want("")
		w.wild("a=2")
		w.accepts(w.either("a=2 b", "a=2"))
		w.named("x")
		w.accepts(w.either("a=2 b x", "x"))
		w.named("-x", "-y")
		w.accepts(w.either("a=2 b", "-x -y"))
		w.named("y")
		w.accepts(w.either("a=2 b y", "y"))
		w.want("")
	})
}

// The name is answered before the wildcard. It is sent at once (P34), except in SotW, where a
// full set without the rest would delete it (P30).
func TestP34_NameBeforeTheWildcard(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.sub("*", "x")
	w.named("x")
	w.accepts("x")
	w.wild("a", "x")
	w.want("a")
	s := newSessionFixture(t, xds.ClusterType, xds.SotW)
	s.sub("*", "x")
	s.named("x")
	s.want("")
	s.wild("a")
	s.want("a x")
}

// Delta: a client already has a name beside the wildcard. It is sent the removal once the name's
// own answer says so (P27). The rest waits for that answer, for 5 s at most (P67).
func TestP27_NameBesideTheWildcard(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a")
	w.send(request{names: []string{"*", "x"}, initial: map[string]string{"a": w.Resource("a").Version.String(), "x": "1", "w": "1"}})
	w.accepts("(empty)")
	w.want("")
	w.Pass(snapshot.NamesWait)
	w.accepts("-w")
	w.named("-x")
	w.want("-x")
}

// A client unsubscribes from the wildcard and goes on to ask for a name, or for an alias: then the
// resource has a name of its own (P26). It was sent the wildcard's copy of it. If the copy of the
// other stream differs by then, it is sent. If it is equal, nothing is sent (P50).
func TestP50_NamedCopyFollowsTheWildcards(t *testing.T) {
	for _, c := range []struct {
		name, other, differs   string // specs; other: what the name leads to as well, or the same
		first, later, laterCDS string // responses; of full states
	}{
		{"a", "a", "a=2", "a", "a=2", "a=2"},
		{"x|alias", "y|alias", "x|alias=2", "x y", "x=2", "x=2 y"},
	} {
		for _, url := range []xds.TypeURL{xds.ClusterType, xds.EndpointType} {
			for _, differs := range []bool{true, false} {
				each(t, url, func(w *sessionFixture) {
					name := c.name[strings.Index(c.name, "|")+1:]
					w.sub(name, "*")
					w.wild(c.name, c.other)
					w.named(c.name, c.other)
					w.accepts(c.first)
					if differs {
						w.named(c.differs)
					}
					w.want("")
					w.drop("*", name)
					switch {
					case differs && w.s.fullState():
						w.accepts(c.laterCDS)
					case differs:
						w.accepts(c.later)
					}
					w.want("")
				})
			}
		}
	}
}

// What has to be sent of a rejected response is sent, although the client unsubscribed from the
// wildcard before, and although it asks by an alias (P15, P26).
func TestP15_RestOfANACKByAlias(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.sub("*", "alias")
	w.wild("x|alias", "y")
	w.named("x|alias")
	w.want("x y")
	w.sub("y")
	w.named("y=2")
	w.wild("y=2")
	w.want("y=2")
	w.send(request{nack: 1}) // y was sent since, and x may never change
	w.unsub("*")
	w.send(request{ack: 2})
	w.want("x")
}

// A client asks for an alias. A wildcard may have sent its resource to other clients before,
// and lost it. When the resource comes for the alias, it is new to this client (P26).
func TestP23_ResourceOfANewAliasIsSent(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.sub("a")
		w.wild("x|alias", "y|alias")
		w.named("a", "x|alias")
		w.accepts("a")
		w.Builder.EndWildcard()
		w.named("x|alias")
		w.sub("a", "alias")
		w.accepts(w.either("x", "a x")) // P23
		w.named("x|alias", "y|alias")
		w.want("y")
	})
}

// A client has a resource by a glob and asks for the wildcard, which has no answer yet. When
// the origin removes the resource, the removal is sent (P28, P32).
func TestP32_RemovedBeforeTheWildcardIsAnswered(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := newSessionFixture(t, xds.VHostType, xds.Delta)
		w.sub("n", "xdstp://o/T/c/*")
		if again {
			w.named("n", "xdstp://o/T/c/1")
			w.want("n xdstp://o/T/c/1")
		} else { // it is sent while an ACK is pending (P19)
			w.named("n", "-xdstp://o/T/c/*")
			w.want("n -xdstp://o/T/c/*")
			w.named("n", "xdstp://o/T/c/1")
			w.want("xdstp://o/T/c/1")
			w.send(request{ack: 1})
		}
		w.ack()
		w.sub("*")
		w.named("n", "-xdstp://o/T/c/1", "-xdstp://o/T/c/*")
		w.accepts("n -xdstp://o/T/c/*")
		if again {
			w.wild("n", "xdstp://o/T/c/1@2")
			w.want("xdstp://o/T/c/1@2")
		} else {
			w.wild("n")
			w.want("-xdstp://o/T/c/1")
		}
	}
}

// A client drops what it already had when it unsubscribes from the wildcard. If it asks for it
// again, it is sent (P27).
func TestP27_UnsubscribedClientVersion(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.send(request{names: []string{"*", "a"}, initial: map[string]string{
		"a": w.Resource("a").Version.String(), "b": w.Resource("b").Version.String(), "c": "1",
	}})
	w.want("")
	w.unsub("*")
	w.sub("*")
	w.wild("a", "b")
	w.want("b -c")
}

// A set that was rejected under the wildcard is repeated once anything of it changes, also to a
// client that has unsubscribed from the wildcard since (P15).
func TestP15_NACKUnderAnEndedWildcard(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.SotW)
	w.named("a", "b")
	w.sub("a", "b", "*")
	w.wild("a", "b", "c")
	w.rejects("a b c")
	w.want("")
	w.sub("a", "b")
	w.want("") // not by itself
	w.named("a=2")
	w.accepts("a=2 b")
	w.named("a")
	w.want("a")
}

// What was rejected changes, and the change goes out ahead, since the name is
// asked for (P19): the rest follows.
func TestP15_RestOfANACKFollowsAnAnswer(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.sub("*")
	w.wild("a", "f")
	w.want("a f")
	w.wild("c")
	w.Pass(ackTimeout)
	w.want("c")
	w.send(request{nack: 1})
	w.wild("f=2")
	w.want("") // c is not answered
	w.sub("f")
	w.accepts("f=2")
	w.accepts("a")
	w.want("")
}

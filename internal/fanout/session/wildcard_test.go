package session

import (
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

// Delta: a name that is subscribed while an ACK is pending does not wait for the ACK.
// It is not answered before there is an answer (P19).
func TestP19_NameBesideTheWildcardDoesNotWait(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a")
	w.sub("*")
	w.want("a")
	w.sub("x") // beside it; its ACK is pending
	w.want("")
	w.wild("b")
	w.want("")
	w.named("-x")
	w.accepts("-x")
	w.want("b")
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

// The wildcard removes a name that has no answer yet: the removal is sent, and the name's
// answer follows (P32).
func TestP32_WildcardRemovesAnUnansweredName(t *testing.T) {
	for _, answer := range []string{"x", "-x"} {
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.wild("a", "x")
		w.sub("*")
		w.accepts("a x")
		w.sub("x")
		w.accepts("x") // P23
		w.wild("-x")
		w.accepts("-x")
		w.named(answer)
		w.want(answer)
	}
}

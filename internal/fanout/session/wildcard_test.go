package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// A name beside the wildcard has an answer of its own (P50): what the wildcard
// leaves out says nothing of it, and until it is answered nothing is sent for it.
func TestP25_BesideTheWildcard(t *testing.T) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			full := func(all, delta string) string { // CDS: SotW has all
				if v == xds.SotW {
					return all
				}
				return delta
			}
			w := newSessionFixture(t, xds.ClusterType, v)
			w.wild("a", "b")
			w.sub("*", "x", "y")
			w.want("a b")
			w.ack("*", "x", "y")
			w.want("")
			w.wild("a=2")
			w.want(full("a=2 b", "a=2"))
			w.ack("*", "x", "y")
			w.named("x")
			w.want(full("a=2 b x", "x"))
			w.ack("*", "x", "y")
			w.named("-x", "-y")
			w.want(full("a=2 b", "-x -y"))
			w.ack("*", "x", "y")
			w.named("y")
			w.want(full("a=2 b y", "y"))
			w.ack("*", "x", "y")
			w.want("")
		})
	}
}

// The name is answered before the wildcard: nobody waits (P34), but for SotW,
// where the rest would be taken for gone (P30).
func TestP34_TheNameBeforeTheWildcard(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.sub("*", "x")
	w.named("x")
	w.want("x")
	w.ack()
	w.wild("a", "x")
	w.want("a")
	s := newSessionFixture(t, xds.ClusterType, xds.SotW)
	s.sub("*", "x")
	s.named("x")
	s.want("")
	s.wild("a")
	s.want("a x")
}

// Incremental: a name that is subscribed while a response is unanswered does not
// wait for the ACK, nor is it answered before there is an answer.
func TestP19_ANameBesideTheWildcardDoesNotWait(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a")
	w.sub("*")
	w.want("a")
	w.sub("x") // beside it; the response is unanswered
	w.want("")
	w.wild("b")
	w.want("")
	w.named("-x")
	w.want("-x")
	w.ack()
	w.want("b")
}

// Delta: what a client brings of a name beside the wildcard is told to be gone once
// its own answer says so (P27). The rest waits for that answer, for 5 s at most (P67).
func TestP27_ANameBesideTheWildcard(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a")
	w.send(request{names: []string{"*", "x"}, initial: map[string]string{"a": w.Resource("a").Version.String(), "x": "1", "w": "1"}})
	w.want("(empty)")
	w.ack()
	w.want("")
	w.Pass(NamesWait)
	w.want("-w")
	w.ack()
	w.named("-x")
	w.want("-x")
}

// The wildcard removes a name that has not been answered: the client is told, and
// the name's answer follows.
func TestP32_TheWildcardRemovesANameBeforeItIsAnswered(t *testing.T) {
	for _, answer := range []string{"x", "-x"} {
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.wild("a", "x")
		w.sub("*")
		w.want("a x")
		w.ack()
		w.sub("x")
		w.want("x") // P23
		w.ack()
		w.wild("-x")
		w.want("-x")
		w.ack()
		w.named(answer)
		w.want(answer)
	}
}

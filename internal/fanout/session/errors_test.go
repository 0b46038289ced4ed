package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// A newly subscribed name is answered with its error at once (P39).
func TestP39_NewlySubscribed(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.Fail(false, "a")
		w.named("b")
		w.sub("b")
		w.want("b")
		w.sub("a", "b") // unanswered
		if w.s.form.Variant == xds.Delta {
			w.want("b !a") // P19: it does not wait; P23: b again
			w.want("")
			w.ack()
			w.want("")
			return
		}
		w.want("")
		w.ack()
		w.accepts("!a")
		w.want("")
	})
}

// So it is in a full-state response, although nothing changed.
func TestP39_NewlyListedInAFullState(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.named("a")
	w.Fail(false, "b")
	w.sub("a")
	w.accepts("a")
	w.ack("a", "b")
	w.accepts("a !b")
	w.want("")
}

// A resource that is sent before the ACK of its error clears the error as well (P39).
func TestP39_ClearedBeforeACK(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.sub("a")
	w.Fail(false, "a")
	w.want("!a")
	w.named("a")
	w.want("a") // P19: the answer to a new name does not wait
	w.want("")
	w.ack()
	w.want("")
	w.Fail(false, "a")
	w.accepts("!a")
	w.want("")
}

// After an error the resource is sent again to a client that has it: nothing else says that
// the error is over (P39).
func TestP39_ResourceClearsTheError(t *testing.T) {
	eachAnswer(t, xds.EndpointType, func(w *sessionFixture, wild bool) {
		w.origin(wild, "a", "b")
		w.ask(wild, "a", "b")
		w.accepts("a b")
		w.Fail(wild, "a")
		full := wild && w.s.form.Variant == xds.SotW
		w.accepts(map[bool]string{true: "a b !a", false: "!a"}[full])
		w.want("")
		w.origin(wild, "a")
		w.accepts(map[bool]string{true: "a b", false: "a"}[full])
		w.want("")
		// A client that was not sent the error is sent nothing.
		w.Fail(wild, "b")
		w.origin(wild, "b")
		w.want("")
	})
}

// A resource and an error of one name are not in the same response: the error is sent after
// it. A full-state response has both, since it has to have every resource (P39).
func TestP39_ResourceThenError(t *testing.T) {
	eachAnswer(t, xds.EndpointType, func(w *sessionFixture, wild bool) {
		w.origin(wild, "a", "b")
		w.Fail(wild, "a")
		w.ask(wild, "a", "b")
		if wild && w.s.form.Variant == xds.SotW {
			w.accepts("a b !a")
			w.want("")
			// A change of the other resource repeats the error, since a would clear it.
			w.origin(wild, "b=2")
			w.accepts("a b=2 !a")
			w.want("")
			return
		}
		w.want("a b")
		w.want("") // after the ACK
		if out := w.ack(); !out.Wake {
			t.Error("the answer does not wake the session")
		}
		w.accepts("!a")
		w.want("")
		if w.s.delivered.errors != nil {
			t.Error("the session is in step and holds names")
		}
	})
}

// An error of the wildcard as a whole is sent to the clients that subscribe to it (P39).
func TestP39_ErrorOfTheWildcard(t *testing.T) {
	for _, v := range variants {
		for _, name := range []string{"*", ""} {
			w := newSessionFixture(t, xds.ClusterType, v)
			w.wild("a")
			w.Fail(true, name)
			w.sub("*")
			w.want("a !" + name)
			w.joins()
			w.sub("a")
			if got := w.next(); got != "a" {
				t.Errorf("a client that asked for a name is sent %q", got)
			}
		}
	}
}

// The error in a rejected response is part of it. It is not sent again by itself, and again
// with the rest (P15).
func TestP15_NACKedErrors(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.sub("a", "b", "c")
		w.named("c")
		w.Fail(false, "a")
		w.rejects("c !a")
		w.want("")
		w.named("b")
		w.accepts("b")
		w.named("c=2")
		w.want("c=2 !a")
	})
}

// A client that gave a name up is not sent its errors (P51).
func TestP51_ErrorsOfOthersNames(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("a", "b")
		w.sub("a", "b")
		w.want("a b")
		w.ack("b")
		if w.s.form.Variant == xds.Delta {
			w.unsub("a")
		}
		w.Fail(false, "a")
		w.want("")
		w.Fail(false, "b")
		w.want("!b")
	})
}

// An error of a name that one client asked for is not sent to a client that has the wildcard
// alone. Otherwise each name that one client asks for in vain would send the whole state to
// all others (P51, P16).
func TestP51_ErrorsOfOthersAreNotSentToTheWildcard(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.wild("a", "b")
		w.sub()
		w.accepts("a b")
		w.Fail(false, "x", "-y", "a")
		w.want("")
		w.joins()
		w.sub()
		w.accepts("a b")
		w.joins()
		w.sub("*", "x")
		w.accepts("a b !x")
		// An error of a resource that the wildcard has is for all.
		w.Fail(true, "b")
		w.want(w.either("a b !b !x", "!b"))
	})
}

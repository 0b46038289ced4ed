package session

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// An error is an answer: it reaches who asked for the name, once, and late
// joiners, and nobody else.
func TestP39_ErrorsReachWhoAsked(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.sub("a", "b")
		w.want("")
		w.Fail(false, "a", "x")
		w.want("!a")
		w.ack("a", "b")
		w.want("")
		w.named("b")
		w.want("b")
		w.ack("a", "b")

		w.joins()
		w.sub("b")
		w.want("b")
		w.joins()
		w.sub("a")
		w.want("!a")
		w.ack("a")
		// Another word is news, and so is the resource.
		w.Pass(time.Second)
		w.Fail(false, "a")
		w.want("!a")
		w.ack("a")
		w.named("a")
		w.want("a")
		w.ack("a")
		w.want("")
		w.joins()
		w.sub("a")
		w.want("a")
	})
}

// A name newly subscribed is answered with its error, at once.
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
		w.ack("a", "b")
		w.want("!a")
		w.ack("a", "b")
		w.want("")
	})
}

// In a full-state response as well, though nothing changed since.
func TestP39_NewlyListedInAFullState(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.named("a")
	w.Fail(false, "b")
	w.sub("a")
	w.want("a")
	w.ack("a")
	w.ack("a", "b")
	w.want("a !b")
	w.ack("a", "b")
	w.want("")
}

// A resource that is sent ahead, since the error before it is unanswered, clears
// the error as well.
func TestP39_ClearedAhead(t *testing.T) {
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
	w.want("!a")
	w.ack()
	w.want("")
}

// The resource that a client holds goes out again after its error: nothing else
// says that the error is over.
func TestP39_TheNextResourceClearsIt(t *testing.T) {
	eachAnswer(t, xds.EndpointType, func(w *sessionFixture, wild bool) {
		w.origin(wild, "a", "b")
		list := w.ask(wild, "a", "b")
		w.want("a b")
		w.ack(list...)
		w.Fail(wild, "a")
		if full := wild && w.s.form.Variant == xds.SotW; full {
			w.want("a b !a")
		} else {
			w.want("!a")
		}
		w.ack(list...)
		w.want("")
		w.origin(wild, "a")
		if full := wild && w.s.form.Variant == xds.SotW; full {
			w.want("a b")
		} else {
			w.want("a")
		}
		w.ack(list...)
		w.want("")
		// Who never heard of it hears nothing.
		w.Fail(wild, "b")
		w.origin(wild, "b")
		w.want("")
	})
}

// A resource and an error of one name are no part of the same response: the
// error comes after it. But in a full-state response, which has to hold every
// resource.
func TestP39_ResourceThenError(t *testing.T) {
	eachAnswer(t, xds.EndpointType, func(w *sessionFixture, wild bool) {
		w.origin(wild, "a", "b")
		w.Fail(wild, "a")
		list := w.ask(wild, "a", "b")
		if wild && w.s.form.Variant == xds.SotW {
			w.want("a b !a")
			w.ack(list...)
			w.want("")
			// A change of the other has it again, since a would clear it.
			w.origin(wild, "b=2")
			w.want("a b=2 !a")
			w.ack(list...)
			w.want("")
			return
		}
		w.want("a b")
		w.want("") // after the ACK
		out := w.send(request{names: w.list(list), ack: -1})
		if !out.Wake {
			t.Error("the answer wakes nobody")
		}
		w.want("!a")
		w.ack(list...)
		w.want("")
		if w.s.delivered.errors != nil {
			t.Error("the session is in step and holds names")
		}
	})
}

// NOT_FOUND is absence: in incremental the name is in removed_resources as well,
// and SotW, which has nothing else to say it by, has the error.
func TestP25_NotFoundIsSaid(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.sub("a")
		w.Fail(false, "-a")
		if w.s.form.Variant == xds.Delta {
			w.want("-a !a")
		} else {
			w.want("!a")
		}
		w.ack("a")
		w.want("")
		w.named("a")
		w.want("a")
	})
	w := newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.named("b")
	w.sub("a", "b")
	w.want("b")
	w.ack("a", "b")
	w.Fail(false, "-a")
	w.want("b !a")
}

// Of a wildcard as a whole an error can be given too: to those who have it.
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
				t.Errorf("who asked for a name is told %q", got)
			}
		}
	}
}

// The error of a refused response is a part of it: not said again by itself,
// and again with the rest of it (P15).
func TestP15_RefusedErrors(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.sub("a", "b", "c")
		w.named("c")
		w.Fail(false, "a")
		w.want("c !a")
		w.nack("a", "b", "c")
		w.want("")
		w.named("b")
		w.want("b")
		w.ack("a", "b", "c")
		w.named("c=2")
		w.want("c=2 !a")
	})
}

// A client that gave a name up hears nothing of its errors.
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

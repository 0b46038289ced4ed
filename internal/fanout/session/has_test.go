package session

import (
	"testing"

	"xdsrelay/internal/xds"
)

// has expects how many generations the client is behind the newest one, and whether it
// refuses anything.
func (w *sessionFixture) has(when string, behind uint64, refusing bool) {
	w.T.Helper()
	s := w.s
	look := NewSurvey()
	open := look.Unsent(s, w.Cur) || len(s.inFlight.responses) > 0 || s.Refusing()
	if got := s.AckedGeneration(w.Cur, open); w.Cur.Gen-got != behind || s.Refusing() != refusing {
		w.T.Errorf("%s: the client has generation %d of %d, refusing %v; want %d behind, refusing %v", when, got, w.Cur.Gen, s.Refusing(), behind, refusing)
	}
}

// eachHas runs f with a client that asks for a and b, and has both.
func eachHas(t *testing.T, f func(w *sessionFixture)) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) {
			w := newSessionFixture(t, xds.EndpointType, v)
			w.named("a", "b")
			w.sub("a", "b")
			w.want("a b")
			w.has("nothing is acknowledged", 1, false)
			w.ack("a", "b")
			w.has("all is acknowledged", 0, false)
			f(w)
		})
	}
}

// A client has what it acknowledged, and a generation in which nothing is for it.
func TestAClientHasWhatItAcknowledged(t *testing.T) {
	eachHas(t, func(w *sessionFixture) {
		w.named("c")
		w.has("nothing in it is for the client", 0, false)
		w.next()
		w.named("a=2")
		w.has("it is not sent", 1, false)
		w.want("a=2")
		w.has("it is sent", 1, false)
		w.named("b=2")
		w.has("more waits", 2, false)
		w.ack("a", "b")
		w.has("the first is acknowledged", 1, false)
		w.want("b=2")
		w.ack("a", "b")
		w.has("both are", 0, false)
	})
}

// An acknowledged generation stays acknowledged when the client asks for more.
func TestP23_AskingForMoreTakesNothingBack(t *testing.T) {
	eachHas(t, func(w *sessionFixture) {
		w.named("c")
		w.next()
		names := map[xds.Variant][]string{xds.SotW: {"a", "b", "c"}, xds.Delta: {"c"}}[w.s.form.Variant]
		w.send(request{names: names, nonce: w.nonces[len(w.nonces)-1]})
		w.has("c is not sent", 0, false)
		w.want("c")
		w.has("c is not acknowledged", 0, false)
		w.ack("a", "b", "c")
		w.has("c is acknowledged", 0, false)
	})
}

// A client that refused something has only what came before, until it acknowledges a
// response that speaks of it again.
func TestP15_ARefusalStandsUntilALaterResponse(t *testing.T) {
	eachHas(t, func(w *sessionFixture) {
		w.named("a=2")
		w.want("a=2")
		w.nack("a", "b")
		w.has("refused", 1, true)
		w.named("b=2")
		w.want("b=2")
		w.ack("a", "b")
		w.has("another is acknowledged", 2, true)
		w.named("a") // the roll-back
		w.want("a")
		w.has("the roll-back is sent", 1, false)
		w.ack("a", "b")
		w.has("the roll-back is acknowledged", 0, false)
	})
	full := newSessionFixture(t, xds.ClusterType, xds.SotW)
	full.wild("a")
	full.sub()
	full.want("a")
	full.ack()
	full.wild("a=2")
	full.want("a=2")
	full.nack()
	full.has("refused", 1, true)
	full.wild("b")
	full.want("a=2 b")
	full.has("the next set is sent", 2, true)
	full.ack()
	full.has("the next set is acknowledged", 0, false)
}

// What a client refused and gave up, or what is removed since, keeps it from nothing.
func TestP24_ARefusalEndsWithItsNames(t *testing.T) {
	eachHas(t, func(w *sessionFixture) {
		w.named("b=2")
		w.want("b=2")
		r := request{nack: -1, unsub: []string{"b"}}
		if w.s.form.Variant == xds.SotW {
			r = request{nack: -1, names: []string{"a"}}
		}
		w.send(r)
		w.has("refused and given up", 0, false)
	})
	eachHas(t, func(w *sessionFixture) {
		w.named("b=2")
		w.want("b=2")
		w.nack("a", "b")
		w.named("-b")
		if w.next() != "" { // P31: in SotW nothing is sent
			w.has("its removal is sent", 2, false)
			w.ack("a", "b")
		}
		w.has("refused and removed", 0, false)
	})
}

// A response that is not answered in time holds back no later one (P19): its generation is
// acknowledged with that.
func TestP19_ALaterACKCounts(t *testing.T) {
	eachHas(t, func(w *sessionFixture) {
		w.named("a=2")
		w.want("a=2")
		w.Pass(ackTimeout)
		w.named("b=2")
		if w.next() == "" {
			t.Fatal("an unanswered response holds back the next one for ever")
		}
		w.has("two are unanswered", 2, false)
		w.ack("a", "b")
		w.has("the newest is acknowledged", 0, false)
	})
}

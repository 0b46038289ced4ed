package session

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

var variants = []xds.Variant{xds.SotW, xds.Delta}

func each(t *testing.T, url xds.TypeURL, f func(*sessionFixture)) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) { f(newSessionFixture(t, url, v)) })
	}
}

// The first request starts a new conversation, whatever version and nonce it has. It is
// answered as soon as there is an answer (P11).
func TestP11_FirstRequestIsAnswered(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.wild("a", "b")
		w.send(request{version: w.Cur.Version, nonce: 7})
		w.want("a b")
		w.ack()
		w.want("")
	})
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.send(request{names: []string{"a"}, version: "v", nonce: 7})
		w.want("") // nothing is known yet
		w.named("a")
		w.want("a")
	})
}

// The first response to a wildcard is sent even if it is empty, but not before the origin has
// answered. So it is if the client already had everything (P27).
func TestP11_EmptyWildcard(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.sub()
		w.want("")
		w.wild()
		w.want("(empty)")
		w.ack()
		w.want("")
	})
	// Names that other clients asked for are no answer to the wildcard. In SotW the client
	// would take the rest for gone.
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.named("x")
		w.sub("*")
		w.want("")
		w.wild("y")
		w.want("y")
	})
	full := newSessionFixture(t, xds.ClusterType, xds.SotW)
	full.named("x")
	full.sub("*", "x")
	full.want("")
	full.wild("y")
	full.want("x y")
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a")
	w.send(request{initial: map[string]string{"a": w.Resource("a").Version.String()}})
	w.want("(empty)")
	w.ack()
	w.want("")
}

// Versions never make a NACK. A NACK with another stream's nonce is only logged (P13).
func TestP13_NackNeedsNonceOfThisStream(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.wild("a")
		w.sub()
		w.want("a")
		if out := w.send(request{nack: 1, version: "other"}); out.Answer != Nacked {
			t.Fatalf("a NACK with the nonce: %v", out.Answer)
		}
		w.wild("a=2")
		w.want("a=2")
		var req xds.Request
		if err := req.Scan(w.s.form.Variant, request{nack: 1}.wire(w.s.form.Variant), 0); err != nil {
			t.Fatal(err)
		}
		if out := w.s.Request(&req, w.s.sub.requested, 0); out.Answer != UnknownNonce || len(w.s.pendingACKs.responses) != 1 {
			t.Fatalf("a NACK with a foreign nonce: %v, %d unanswered", out.Answer, len(w.s.pendingACKs.responses))
		}
		if out := w.send(request{ack: 2, version: "nonsense"}); out.Answer != Acked {
			t.Fatalf("an old version without error_detail: %v", out.Answer)
		}
	})
}

func TestP14_SubscriptionWhateverNonce(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("a", "b", "c")
	w.sub("a")
	w.want("a")
	w.send(request{names: []string{"b"}, nonce: 99})
	w.want("b")
	if len(w.s.pendingACKs.responses) != 2 {
		t.Fatalf("%d unanswered: the unknown nonce acknowledged one", len(w.s.pendingACKs.responses))
	}
	w.send(request{names: []string{"c"}, ack: 1})
	w.want("c")
	if len(w.s.pendingACKs.responses) != 2 || w.s.pendingACKs.responses[0].seq != 2 {
		t.Fatalf("unanswered: %+v", w.s.pendingACKs.responses)
	}
}

func TestP15_NACKedIsNotSentAgain(t *testing.T) {
	t.Run("delta", func(t *testing.T) {
		w := newSessionFixture(t, xds.EndpointType, xds.Delta)
		w.named("a", "b", "c")
		w.sub("a", "b", "c")
		w.want("a b c")
		w.ack()
		w.named("a=2", "b=2")
		w.want("a=2 b=2")
		w.nack()
		w.want("")
		w.Pass(time.Hour)
		w.want("")
		w.named("c=2") // another change is sent without it
		w.want("c=2")
		w.ack()
		w.named("a=33") // all of the rejected response again
		w.want("a=33 b=2")
		w.ack()
		w.named("b=33")
		w.want("b=33")
		w.nack()
		w.named("-b") // it is removed
		w.want("-b")
	})
	t.Run("two refusals stay two", func(t *testing.T) {
		w := newSessionFixture(t, xds.EndpointType, xds.Delta)
		w.named("a", "b")
		w.sub("a", "b")
		w.want("a b")
		w.ack()
		w.named("a=2")
		w.want("a=2")
		w.nack()
		w.named("b=2")
		w.want("b=2")
		w.nack()
		w.named("a=33")
		w.want("a=33")
	})
	t.Run("sotw", func(t *testing.T) {
		w := newSessionFixture(t, xds.EndpointType, xds.SotW)
		w.named("a", "b", "c")
		w.sub("a", "b", "c")
		w.want("a b c")
		w.ack("a", "b", "c")
		w.named("a=2", "b=2")
		w.want("a=2 b=2")
		w.nack("a", "b", "c")
		w.want("")
		w.named("c=2")
		w.want("c=2")
		w.ack("a", "b", "c")
		w.named("b=33")
		w.want("a=2 b=33")
	})
	t.Run("sotw full state", func(t *testing.T) {
		w := newSessionFixture(t, xds.ClusterType, xds.SotW)
		w.wild("a", "b")
		w.sub()
		w.want("a b")
		w.nack()
		w.want("")
		w.wild("b=2")
		w.want("a b=2")
	})
}

func TestP19_OneUnanswered(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		sotw := w.s.form.Variant == xds.SotW
		full := func(full, delta string) string {
			if sotw {
				return full
			}
			return delta
		}
		w.wild("a", "b")
		w.sub()
		w.want("a b")
		w.wild("a=2")
		w.want("")
		w.wild("b=2", "-a")
		w.want("")
		w.ack()
		w.want(full("b=2", "b=2 -a")) // merged
		first := w.s.acked.version
		w.wild("b=33")
		w.Pass(ackTimeout - 1)
		w.want("")
		w.Pass(1)
		w.want("b=33") // after ack_timeout without an answer
		if w.s.acked.version != first {
			t.Fatal("what is acknowledged is not the old base")
		}
		w.wild("b")
		w.Pass(ackTimeout - 1)
		w.want("") // each ack_timeout
		if out := w.send(request{nack: 2}); out.Answer != Nacked {
			t.Fatalf("a late NACK of an earlier response: %v", out.Answer)
		}
		w.want("") // the ACK of the newest is still pending
		w.ack()
		w.want(full("b", "b -a")) // with all that the rejected one held (P15)
	})
}

// A client rejects a response late. A response that did not wait had a change of a part of it.
// The rest is sent, since no further change may come to send it (P15).
func TestP15_LateNACKOfAChangedResource(t *testing.T) {
	t.Run("delta", func(t *testing.T) {
		w := newSessionFixture(t, xds.ClusterType, xds.Delta)
		w.wild("a", "b", "c")
		w.sub()
		w.want("a b c")
		w.ack()
		w.wild("a=2", "-b")
		w.want("a=2 -b")
		w.later = true
		w.wild("-a")
		w.want("-a")
		w.later = false
		w.send(request{nack: 2})
		w.want("") // the ACK of the newest is pending
		w.ack()
		w.want("-b")
		w.ack()
		w.want("")
	})
	t.Run("sotw", func(t *testing.T) {
		w := newSessionFixture(t, xds.EndpointType, xds.SotW)
		w.named("a", "b")
		w.sub("a", "b")
		w.want("a b")
		w.ack("a", "b")
		w.named("a=2", "b=2")
		w.want("a=2 b=2")
		w.later = true
		w.named("a=33")
		w.want("a=33")
		w.later = false
		w.send(request{names: []string{"a", "b"}, nack: 2})
		w.want("")
		w.ack("a", "b")
		w.want("b=2")
		w.ack("a", "b")
		w.want("")
	})
}

// A later answer to names that are asked for again is no change of what was rejected (P15).
func TestP15_LateNACKOfAResubscribedName(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.sub("a", "b")
	w.want("a b")
	w.sub("a")
	w.want("a")
	w.send(request{nack: 1})
	w.want("")
	w.ack()
	w.want("")
	w.named("a=2") // now it is
	w.want("a=2 b")
}

// Delta: answers to newly subscribed names do not wait for an ACK (P19).
func TestP19_NewNamesDoNotWait(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("a", "b", "-gone")
	w.sub("a")
	w.want("a")
	w.named("a=2")
	w.want("") // a change waits
	w.sub("b", "gone", "c")
	w.want("b -gone")
	w.want("")
	w.named("c") // the answer to c came later
	w.want("c")
	w.named("b=2")
	w.want("")
	w.ack()
	// The rest is merged. What was sent before the ACK is not sent again unless it changed.
	w.want("a=2 b=2")
	w.ack()
	w.want("")
}

// A Cluster response with a pending ACK does not hold back the next one when a later type has a
// newer change to send (P19).
func TestP19_WarmingDoesNotHoldBack(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.wild("a")
		w.sub()
		w.want("a")
		w.wild("a", "b")
		w.want("")
		w.later = true
		if got := w.next(); got != "b" && got != "a b" {
			t.Fatalf("sends %q", got)
		}
	})
}

// A client moves forward and back between two lines of snapshots. It is sent the difference in
// either direction.
func TestTwoTracks(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		w.wild("a", "b")
		stable := w.Cur
		w.sub()
		w.want("a b")
		w.ack()
		w.wild("a=2", "c", "-b")
		candidate := w.Cur
		if got := w.next(); got != "a=2 c -b" && got != "a=2 c" {
			t.Fatalf("forward sends %q", got)
		}
		w.ack()
		w.Cur = stable
		if got := w.next(); got != "a b -c" && got != "a b" {
			t.Fatalf("back sends %q", got)
		}
		w.ack()
		w.want("")
		w.Cur = candidate
		if got := w.next(); got != "a=2 c -b" && got != "a=2 c" {
			t.Fatalf("forward again sends %q", got)
		}
	})
}

package fanout

import (
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

var variants = []xds.Variant{xds.SotW, xds.Delta}

func each(t *testing.T, url xds.TypeURL, f func(*world)) {
	for _, v := range variants {
		t.Run(v.String(), func(t *testing.T) { f(newWorld(t, url, v)) })
	}
}

// The first request is a fresh one, whatever version and nonce it carries, and
// is answered as soon as there is an answer.
func TestP11_FirstRequestIsAnswered(t *testing.T) {
	each(t, xds.ClusterType, func(w *world) {
		w.wild("a", "b")
		w.send(request{version: w.cur.Version, nonce: 7})
		w.want("a b")
		w.ack()
		w.want("")
	})
	each(t, xds.EndpointType, func(w *world) {
		w.send(request{names: []string{"a"}, version: "v", nonce: 7})
		w.want("") // nothing is known yet
		w.named("a")
		w.want("a")
	})
}

// A first answer to a wildcard is sent even if empty, but not before the origin
// has answered; also where P27 leaves nothing.
func TestP11_EmptyWildcard(t *testing.T) {
	each(t, xds.ClusterType, func(w *world) {
		w.sub()
		w.want("")
		w.wild()
		w.want("(empty)")
		w.ack()
		w.want("")
	})
	// What others asked for by name is no answer to the wildcard; beside it, in
	// SotW, the rest would be taken for gone.
	each(t, xds.ClusterType, func(w *world) {
		w.named("x")
		w.sub("*")
		w.want("")
		w.wild("y")
		w.want("y")
	})
	full := newWorld(t, xds.ClusterType, xds.SotW)
	full.named("x")
	full.sub("*", "x")
	full.want("")
	full.wild("y")
	full.want("x y")
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.wild("a")
	w.send(request{initial: map[string]string{"a": w.resource("a").Version.String()}})
	w.want("(empty)")
	w.ack()
	w.want("")
}

func TestP12_StaleRequests(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.SotW)
	w.named("a", "b")
	w.sub("a")
	w.want("a")
	// Unanswered: this is no ACK, gets no response, but counts upstream.
	out := w.send(request{names: []string{"a", "b"}})
	if out.Verdict != Stale || len(w.s.flights) != 1 || !w.s.want.Names.Has("b") {
		t.Fatalf("%+v, want %v", out, w.s.want)
	}
	w.want("")
	// P22 compares with the request before the stale one: b is new to it.
	w.ack("a", "b")
	w.want("b")
	w.ack("a", "b")
	// Once the newest was answered, an old nonce is not stale.
	if out := w.send(request{names: []string{"a", "b", "c"}, ack: 1}); out.Verdict == Stale {
		t.Fatal("stale though nothing is unanswered")
	}
	w.named("c")
	w.want("c")
}

// Versions never tell a NACK; a nonce of another stream is only logged.
func TestP13_NackNeedsNonceOfThisStream(t *testing.T) {
	each(t, xds.ClusterType, func(w *world) {
		w.wild("a")
		w.sub()
		w.want("a")
		if out := w.send(request{nack: 1, version: "other"}); out.Verdict != Nacked {
			t.Fatalf("a NACK with the nonce: %v", out.Verdict)
		}
		w.wild("a=2")
		w.want("a=2")
		var req xds.Request
		if err := req.Scan(w.s.variant, request{nack: 1}.wire(w.s.variant), 0); err != nil {
			t.Fatal(err)
		}
		if out := w.s.Request(&req, w.s.want, 0); out.Verdict != Unknown || len(w.s.flights) != 1 {
			t.Fatalf("a NACK with a foreign nonce: %v, %d unanswered", out.Verdict, len(w.s.flights))
		}
		if out := w.send(request{ack: 2, version: "nonsense"}); out.Verdict != Acked {
			t.Fatalf("an old version without error_detail: %v", out.Verdict)
		}
	})
}

func TestP14_SubscriptionWhateverNonce(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("a", "b", "c")
	w.sub("a")
	w.want("a")
	w.send(request{names: []string{"b"}, nonce: 99})
	w.want("b")
	if len(w.s.flights) != 2 {
		t.Fatalf("%d unanswered: the unknown nonce acknowledged one", len(w.s.flights))
	}
	w.send(request{names: []string{"c"}, ack: 1})
	w.want("c")
	if len(w.s.flights) != 2 || w.s.flights[0].seq != 2 {
		t.Fatalf("unanswered: %+v", w.s.flights)
	}
}

func TestP15_RefusedIsNotSentAgain(t *testing.T) {
	t.Run("delta", func(t *testing.T) {
		w := newWorld(t, xds.EndpointType, xds.Delta)
		w.named("a", "b", "c")
		w.sub("a", "b", "c")
		w.want("a b c")
		w.ack()
		w.named("a=2", "b=2")
		w.want("a=2 b=2")
		w.nack()
		w.want("")
		w.pass(time.Hour)
		w.want("")
		w.named("c=2") // another change goes without it
		w.want("c=2")
		w.ack()
		w.named("a=33") // all of the refused response again
		w.want("a=33 b=2")
		w.ack()
		w.named("b=33")
		w.want("b=33")
		w.nack()
		w.named("-b") // it goes: told
		w.want("-b")
	})
	t.Run("two refusals stay two", func(t *testing.T) {
		w := newWorld(t, xds.EndpointType, xds.Delta)
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
		w := newWorld(t, xds.EndpointType, xds.SotW)
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
		w := newWorld(t, xds.ClusterType, xds.SotW)
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
	each(t, xds.ClusterType, func(w *world) {
		sotw := w.s.variant == xds.SotW
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
		first := w.s.acked
		w.wild("b=33")
		w.pass(ackTimeout - 1)
		w.want("")
		w.pass(1)
		w.want("b=33") // after ack_timeout without an answer
		if w.s.acked != first || w.s.inStep {
			t.Fatal("what is acknowledged is not the old base")
		}
		w.wild("b")
		w.pass(ackTimeout - 1)
		w.want("") // each ack_timeout
		if out := w.send(request{nack: 2}); out.Verdict != Nacked {
			t.Fatalf("a late NACK of an earlier response: %v", out.Verdict)
		}
		w.want("") // the newest is still unanswered
		w.ack()
		w.want(full("b", "b -a")) // with all that the refused one held (P15)
	})
}

// A response that did not wait said what became of a part of one that is refused
// only now: the rest is not left for a change that has already been.
func TestP15_LateRefusalOfWhatChangedSince(t *testing.T) {
	t.Run("delta", func(t *testing.T) {
		w := newWorld(t, xds.ClusterType, xds.Delta)
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
		w.want("") // the newest is unanswered
		w.ack()
		w.want("-b")
		w.ack()
		w.want("")
	})
	t.Run("sotw", func(t *testing.T) {
		w := newWorld(t, xds.EndpointType, xds.SotW)
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

// Answers to names that are asked for again are no change of what was refused.
func TestP15_LateRefusalOfWhatWasOnlyAskedAgain(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
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

// In incremental, answers to newly subscribed names don't wait.
func TestP19_NewNamesDoNotWait(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
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
	// Merged, and what was sent ahead is not sent again unless it changed.
	w.want("a=2 b=2")
	w.ack()
	w.want("")
}

// An unanswered Cluster response does not hold back the next when a later type
// has a newer change to send.
func TestP19_WarmingDoesNotHoldBack(t *testing.T) {
	each(t, xds.ClusterType, func(w *world) {
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

func TestP20_AddThenRemove(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.send(request{names: []string{"a", "b", "a"}, unsub: []string{"b", "x"}})
	w.want("a")
	w.send(request{names: []string{"b"}, unsub: []string{"a"}, ack: -1})
	w.want("b")
	w = newWorld(t, xds.ClusterType, xds.Delta)
	w.wild("a")
	w.send(request{names: []string{"*"}, unsub: []string{"*"}})
	w.want("")
	if !w.s.want.Empty() {
		t.Fatalf("wants %+v", w.s.want)
	}
}

// The protocol text's example of four steps, SotW.
func TestP21_FourStepsSotW(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.SotW)
	w.wild("A", "B")
	w.sub()
	w.want("A B")
	w.ack("*", "A")
	if !w.s.want.Wildcard || !w.s.want.Names.Has("A") {
		t.Fatalf("step 2: %+v", w.s.want)
	}
	w.want("A B") // A is newly listed
	w.ack("A")
	if w.s.want.Wildcard || w.s.want.Names.Len() != 1 {
		t.Fatalf("step 3: %+v", w.s.want)
	}
	w.want("")
	w.sub()
	if !w.s.want.Empty() {
		t.Fatalf("step 4: %+v", w.s.want)
	}
	w.wild("A=2")
	w.want("")
}

// The protocol text's example of four steps, incremental.
func TestP21_FourStepsDelta(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.wild("A", "B")
	w.sub()
	w.want("A B")
	w.ack()
	w.sub("A")
	if !w.s.want.Wildcard || !w.s.want.Names.Has("A") {
		t.Fatalf("step 2: %+v", w.s.want)
	}
	w.want("A")
	w.ack()
	w.unsub("*")
	if w.s.want.Wildcard || w.s.want.Names.Len() != 1 {
		t.Fatalf("step 3: %+v", w.s.want)
	}
	w.wild("A=2", "B=2")
	w.want("A=2")
	w.ack()
	w.unsub("A")
	if !w.s.want.Empty() {
		t.Fatalf("step 4: %+v", w.s.want)
	}
	w.wild("A", "B")
	w.want("")
}

func TestP21_LegacyWildcardByType(t *testing.T) {
	for _, typ := range append(xds.Types(), xds.TypeOf("type.googleapis.com/acme.Thing")) {
		for _, v := range variants {
			w := newWorld(t, typ.URL, v)
			w.sub()
			excepted := typ.Short == "EDS" || typ.Short == "RDS" || typ.Short == "SDS" || typ.Short == "RTDS" || typ.Short == "ECDS"
			if w.s.want.Wildcard == excepted {
				t.Errorf("%s %s: an empty first list is a wildcard: %v", typ.URL, v, w.s.want.Wildcard)
			}
			w = newWorld(t, typ.URL, v)
			w.sub("*")
			if !w.s.want.Wildcard {
				t.Errorf("%s %s: * is no wildcard", typ.URL, v)
			}
		}
	}
	// Incremental: an empty list means no change; the legacy wildcard stays
	// until * is unsubscribed.
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.sub()
	w.sub("A")
	w.unsub("A")
	w.sub()
	if !w.s.want.Wildcard {
		t.Fatal("the legacy wildcard ended")
	}
	w.unsub("*")
	w.sub()
	if !w.s.want.Empty() {
		t.Fatal("an empty list subscribed again")
	}
}

func TestP22_NewlyListed(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.SotW)
	w.named("a", "b", "c")
	w.sub("a", "b")
	w.want("a b")
	w.ack("a", "b", "c")
	w.want("c")
	w.ack("a") // a shorter list gets no response
	w.want("")
	w.sub("a", "b")
	w.want("b") // newly listed again
	w = newWorld(t, xds.ClusterType, xds.SotW)
	w.named("a", "b", "-x")
	w.sub("a")
	w.want("a")
	w.ack("a", "b")
	w.want("a b")
	w.ack("a")
	w.want("")
	w.sub("a", "x") // the full set answers it, without it
	w.want("a")
}

func TestP23_SubscribedAgain(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.sub("a", "b")
	w.want("a b")
	w.ack()
	w.sub("a")
	w.want("a")
	w.ack()
	w = newWorld(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b")
	w.sub("*")
	w.want("a b")
	w.ack()
	w.sub("*")
	w.want("a b")
}

func TestP24_Unsubscribe(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b")
	w.sub("*", "a", "x")
	w.want("a b")
	w.ack()
	w.named("-x") // the name has an answer of its own
	w.want("-x")
	w.ack()
	w.unsub("b") // was not subscribed by name
	w.want("")
	w.unsub("a") // the wildcard covers it
	w.want("a")
	w.ack()
	w.unsub("x") // the wildcard does not
	w.want("-x")
	w = newWorld(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.sub("a", "b")
	w.want("a b")
	w.ack()
	w.unsub("b")
	w.want("")
	w.named("b=2")
	w.want("")
}

func TestP25_Absent(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.named("-a")
	w.sub("a", "b")
	w.want("-a") // b is pending: nothing is sent for it
	w.ack()
	w.pass(time.Hour)
	w.want("")
	w.named("-b")
	w.want("-b")
	w.ack()
	w.named("a") // delivered the moment it appears
	w.want("a")
}

func TestP27_Reconnect(t *testing.T) {
	w := newWorld(t, xds.RouteType, xds.Delta)
	v := func(spec string) string { return w.resource(spec).Version.String() }
	w.named("same", "changed=2", "-gone", "new", "empty")
	w.send(request{
		names:   []string{"same", "changed", "gone", "new", "empty", "late", "late2"},
		initial: map[string]string{"same": v("same"), "changed": v("changed"), "gone": v("gone"), "empty": "", "late": v("late"), "late2": v("late2"), "unwanted": "x"},
	})
	w.want("changed=2 empty new -gone")
	w.ack()
	w.named("late") // known later, and just what the client has
	w.want("")
	w.named("late2=2")
	w.want("late2=2")
	w.ack()
	w.named("same=2")
	w.want("same=2")
	w.ack()
	w.sub("late") // P23
	w.want("late")

	// Under the wildcard, what is gone is told as well.
	w = newWorld(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b=2")
	w.send(request{initial: map[string]string{"a": w.resource("a").Version.String(), "b": w.resource("b").Version.String(), "gone": "v"}})
	w.want("b=2 -gone")
	w.ack()
	w.want("")

	// Before the origin answered, nothing is gone.
	w = newWorld(t, xds.ClusterType, xds.Delta)
	w.send(request{initial: map[string]string{"a": w.resource("a").Version.String(), "gone": "v"}})
	w.want("")
	w.wild("a")
	w.want("-gone")

	// Load assignments are always sent.
	w = newWorld(t, xds.EndpointType, xds.Delta)
	w.named("a")
	w.send(request{names: []string{"a"}, initial: map[string]string{"a": w.resource("a").Version.String()}})
	w.want("a")
}

func TestP30_FullState(t *testing.T) {
	for _, url := range []xds.TypeURL{xds.ClusterType, xds.ListenerType, xds.ScopedType} {
		w := newWorld(t, url, xds.SotW)
		w.wild("a", "b")
		w.sub()
		w.want("a b")
		w.ack()
		w.wild("c")
		w.want("a b c")
		w.ack()
		w.wild("-a")
		w.want("b c")
		w.ack()
		w.wild("-b", "-c")
		w.want("(empty)")
	}
	// Any type under a wildcard.
	w := newWorld(t, "type.googleapis.com/acme.Thing", xds.SotW)
	w.wild("a", "b")
	w.sub()
	w.want("a b")
	w.ack()
	w.wild("a=2")
	w.want("a=2 b")
	// Beside a name, too, the wildcard is waited for: what is missing is gone.
	w = newWorld(t, xds.ClusterType, xds.SotW)
	w.named("a")
	w.sub("*", "a")
	w.want("")
	w.wild("a", "b")
	w.want("a b")
	// Of names, all that the stream asked for.
	w = newWorld(t, xds.ListenerType, xds.SotW)
	w.named("a", "b", "other")
	w.sub("a", "b")
	w.want("a b")
	w.ack("a", "b")
	w.named("other=2")
	w.want("")
	w.named("-a")
	w.want("b")
}

func TestP31_OtherTypes(t *testing.T) {
	w := newWorld(t, xds.RouteType, xds.SotW)
	w.named("a", "b", "c")
	w.sub("a", "b")
	w.want("a b")
	w.ack("a", "b")
	w.named("b=2", "c=2")
	w.want("b=2")
	w.ack("a", "b")
	w.named("-a")
	w.want("") // a removal sends nothing
}

func TestP32_Delta(t *testing.T) {
	w := newWorld(t, xds.ClusterType, xds.Delta)
	w.wild("a", "b", "c")
	w.sub()
	w.want("a b c")
	w.ack()
	w.wild("b=2", "-c")
	w.want("b=2 -c")
}

func TestP33_NothingChanged(t *testing.T) {
	each(t, xds.ClusterType, func(w *world) {
		w.wild("a")
		w.sub()
		w.want("a")
		w.ack()
		u := xds.Update{Type: w.typ.URL, Origin: "o", Version: "v2", Wildcard: true, Changed: []*xds.Resource{w.resource("a")}}
		w.builder.Apply(u) // equal content under a new version
		w.cur, _ = w.builder.Snapshot(w.cur, 9)
		w.want("")
		w.wild("b")
		w.wild("-b") // gone and back between two sends
		w.want("")
		w.wild("-a")
		if got := w.next(); got != "-a" && got != "(empty)" {
			t.Fatalf("the removal sends %q", got)
		}
		w.ack()
		w.wild("a") // new when it returns
		w.want("a")
	})
}

func TestP34_NothingWithheld(t *testing.T) {
	each(t, xds.ClusterType, func(w *world) {
		w.named("a")
		w.sub("a", "b", "c")
		w.want("a")
		w.ack("a", "b", "c")
		w.named("b")
		if got := w.next(); got != "b" && got != "a b" {
			t.Fatalf("sends %q", got)
		}
	})
}

func TestP37_LoadAssignmentFollows(t *testing.T) {
	each(t, xds.EndpointType, func(eds *world) {
		cds := newWorld(t, xds.ClusterType, eds.s.variant)
		cds.wild("a", "b")
		cds.sub()
		if got := cds.next(); got != "a b" || len(cds.follow) != 2 {
			t.Fatalf("sends %q, followed by %v", got, cds.follow)
		}
		cds.ack()
		eds.named("a", "b", "c")
		eds.sub("a", "b")
		eds.want("a b")
		eds.ack("a", "b")
		cds.wild("b=2", "c")
		if got := cds.next(); got == "" || len(cds.follow) != 2 {
			t.Fatalf("followed by %v, want those of b and c", cds.follow)
		}
		if !eds.s.Refresh(cds.follow) {
			t.Fatal("nothing follows")
		}
		eds.want("b") // unchanged, and c is not subscribed
		eds.ack("a", "b")
		eds.want("")
	})
}

// A member is moved forward and back between States: it gets the difference,
// in either direction.
func TestTwoTracks(t *testing.T) {
	each(t, xds.ClusterType, func(w *world) {
		w.wild("a", "b")
		stable := w.cur
		w.sub()
		w.want("a b")
		w.ack()
		w.wild("a=2", "c", "-b")
		candidate := w.cur
		if got := w.next(); got != "a=2 c -b" && got != "a=2 c" {
			t.Fatalf("forward sends %q", got)
		}
		w.ack()
		w.cur = stable
		if got := w.next(); got != "a b -c" && got != "a b" {
			t.Fatalf("back sends %q", got)
		}
		w.ack()
		w.want("")
		w.cur = candidate
		if got := w.next(); got != "a=2 c -b" && got != "a=2 c" {
			t.Fatalf("forward again sends %q", got)
		}
	})
}

func TestP10_Nonces(t *testing.T) {
	a, b := newNonces(1), newNonces(2)
	seen := map[string]bool{}
	for i := range uint64(2000) {
		n, seq := a.next(nil)
		if seen[string(n)] || seq != i+1 || a.number(n) != seq {
			t.Fatalf("nonce %q is number %d, repeated %v", n, a.number(n), seen[string(n)])
		}
		seen[string(n)] = true
		m, _ := b.next(nil)
		if a.number(m) != 0 || b.number(n) != 0 {
			t.Fatalf("%q and %q: a nonce of the other stream is known", n, m)
		}
	}
	for _, bad := range []string{"", "1", string(a.prefix[:]), string(a.prefix[:]) + "zzzz", string(a.prefix[:]) + "!"} {
		if a.number([]byte(bad)) != 0 {
			t.Fatalf("%q is known", bad)
		}
	}
}

package session

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// has expects how many generations the client is behind the newest one, and whether it
// rejects anything.
func (w *sessionFixture) has(when string, behind uint64, refusing bool) {
	w.T.Helper()
	s := w.s
	look := NewComparisonCache()
	open := look.Unsent(s, w.Cur) || len(s.pendingACKs.responses) > 0 || s.NacksSomething()
	if got := s.AckedGeneration(w.Cur, open); w.Cur.Gen-got != behind || s.NacksSomething() != refusing {
		w.T.Errorf("%s: the client has generation %d of %d, refusing %v; want %d behind, refusing %v", when, got, w.Cur.Gen, s.NacksSomething(), behind, refusing)
	}
}

// eachHas runs f with a client that asks for a and b, and has both.
func eachHas(t *testing.T, f func(w *sessionFixture)) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("a", "b")
		w.sub("a", "b")
		w.want("a b")
		w.has("nothing is acknowledged", 1, false)
		w.ack()
		w.has("all is acknowledged", 0, false)
		f(w)
	})
}

// A client has what it acknowledged, and every later generation in which nothing is for it.
func TestAckedGeneration(t *testing.T) {
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
		w.ack()
		w.has("the first is acknowledged", 1, false)
		w.accepts("b=2")
		w.has("both are", 0, false)
	})
}

// An acknowledged generation stays acknowledged when the client asks for more (P23).
func TestP23_AckedGenerationAfterASubscription(t *testing.T) {
	eachHas(t, func(w *sessionFixture) {
		w.named("c")
		w.next()
		w.more("c")
		w.has("c is not sent", 0, false)
		w.want("c")
		w.has("c is not acknowledged", 0, false)
		w.ack()
		w.has("c is acknowledged", 0, false)
	})
}

// A client that rejected something has only what came before, until it acknowledges a later
// response with those names (P15).
func TestP15_AckedGenerationAfterANACK(t *testing.T) {
	eachHas(t, func(w *sessionFixture) {
		w.named("a=2")
		w.rejects("a=2")
		w.has("refused", 1, true)
		w.named("b=2")
		w.accepts("b=2")
		w.has("another is acknowledged", 2, true)
		w.named("a") // the roll-back
		w.want("a")
		w.has("the roll-back is sent", 1, false)
		w.ack()
		w.has("the roll-back is acknowledged", 0, false)
	})
	full := newSessionFixture(t, xds.ClusterType, xds.SotW)
	full.wild("a")
	full.sub()
	full.accepts("a")
	full.wild("a=2")
	full.rejects("a=2")
	full.has("refused", 1, true)
	full.wild("b")
	full.want("a=2 b")
	full.has("the next set is sent", 2, true)
	full.ack()
	full.has("the next set is acknowledged", 0, false)
}

// A NACK ends when the client unsubscribes from the names, or when they are removed (P24).
func TestP24_NACKEndsWithItsNames(t *testing.T) {
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
		w.rejects("b=2")
		w.named("-b")
		if w.next() != "" { // P31: in SotW nothing is sent
			w.has("its removal is sent", 2, false)
			w.ack()
		}
		w.has("refused and removed", 0, false)
	})
}

// A generation may be stored once a client acknowledged it and rejects nothing of it (P66).
func TestP66_AcceptedSnapshot(t *testing.T) {
	each(t, xds.ClusterType, func(w *sessionFixture) {
		accepted := func(want *snapshot.Snapshot) {
			t.Helper()
			if got := w.s.Accepted(); got != want {
				t.Fatalf("accepted %v, want %v", got, want)
			}
		}
		w.wild("a", "b")
		w.sub("*")
		accepted(nil)
		w.want("a b")
		accepted(nil)
		w.ack()
		accepted(w.Cur)
		first := w.Cur
		w.wild("a=2")
		w.want(w.either("a=2 b", "a=2"))
		accepted(nil)
		w.nack()
		accepted(nil)
		w.wild("a=33")
		w.accepts(w.either("a=33 b", "a=33"))
		accepted(w.Cur)
		if w.Cur == first {
			t.Fatal("there is no newer generation")
		}
	})
}

// A client that resumes is sent nothing that comes from the store, whatever else the
// type has and the origin says (P66).
func TestP66_StoredIsNotForClientsWithState(t *testing.T) {
	for _, v := range variants {
		stored := func(state bool) *sessionFixture {
			w := newSessionFixture(t, xds.EndpointType, v)
			w.Builder.ApplyStored(snapshot.Update{Type: w.Type.URL, Origin: "o", Version: "1", Changed: []*xds.Resource{w.Resource("a"), w.Resource("b")}})
			w.Cur, _ = w.Builder.Snapshot(w.Cur, 1)
			r := request{names: []string{"a", "b", "c"}}
			switch {
			case state && v == xds.SotW:
				r.version = "7"
			case state:
				r.initial = map[string]string{"a": "other", "gone": "1"}
			}
			w.send(r)
			return w
		}
		w := stored(false)
		w.want("a b")
		w = stored(true)
		w.want("")
		w.named("a=2") // b stays as it was stored
		w.want("a=2")
		w.ack()
		w.want("")
	}
	// A full-state response would delete what it does not hold.
	full := newSessionFixture(t, xds.ClusterType, xds.SotW)
	full.Builder.ApplyStored(snapshot.Update{Type: full.Type.URL, Origin: "o", Version: "1", Wildcard: true, Changed: []*xds.Resource{full.Resource("a")}})
	full.Cur, _ = full.Builder.Snapshot(full.Cur, 1)
	full.send(request{names: []string{"*"}, version: "7"})
	full.want("")
	full.part("b")
	full.want("")
	full.wild("-a")
	full.want("b")
}

// What is sent again because a cluster changed (P37) came from the origin long ago. Its ACK
// does not measure how fast a change reaches clients.
func TestP37_FollowersAreNoNews(t *testing.T) {
	each(t, xds.EndpointType, func(w *sessionFixture) {
		w.named("a", "b")
		w.sub("a")
		w.want("a")
		acked := func() time.Time {
			t.Helper()
			return w.ack().Received
		}
		if got := acked(); !got.Equal(w.Now) {
			t.Fatalf("the first came at %v, want %v", got, w.Now)
		}
		w.Pass(time.Hour)
		if !w.s.Refresh([]string{"a"}) {
			t.Fatal("it does not follow")
		}
		w.want("a")
		if got := acked(); !got.IsZero() {
			t.Fatalf("what is repeated came at %v", got)
		}
		w.named("a=2", "b")
		w.Pass(time.Second)
		w.want("a=2")
		if got := acked(); !got.Equal(w.Now.Add(-time.Second)) {
			t.Fatalf("the change came at %v", got)
		}
	})
}

// acknowledging returns a function by which a client in step acknowledges a response once
// more: from the wire to the session's outcome, without the stream around it.
func acknowledging(t testing.TB, v xds.Variant) func() {
	w := newSessionFixture(t, xds.ClusterType, v)
	w.wild("a", "b")
	w.sub()
	w.accepts("a b")
	url, nonce := protowire.Number(4), protowire.Number(5)
	if v == xds.Delta {
		url, nonce = 2, 6
	}
	wire := protowire.AppendString(protowire.AppendTag(nil, url, protowire.BytesType), string(xds.ClusterType))
	wire = protowire.AppendString(protowire.AppendTag(wire, nonce, protowire.BytesType), "01234567-1")
	var req xds.Request
	frame := new(Manifest)
	return func() {
		w.s.pendingACKs.responses = append(w.s.pendingACKs.responses, pendingACK{seq: w.seq, at: w.Now, manifest: frame})
		if err := req.Scan(v, wire, 0); err != nil {
			t.Fatal(err)
		}
		want, _ := w.s.Subscribe(&req)
		if out := w.s.Request(&req, want, w.seq); out.Answer != Acked {
			t.Fatalf("verdict %v", out.Answer)
		}
	}
}

// To wait for an ACK allocates nothing, and the ACK allocates nothing, in either variant.
func TestACKAllocatesNothing(t *testing.T) {
	for _, v := range variants {
		if n := testing.AllocsPerRun(100, acknowledging(t, v)); n != 0 {
			t.Errorf("%v: %v allocations", v, n)
		}
	}
}

// Planning a change that many clients get alike allocates nothing.
func TestNextAllocatesNothing(t *testing.T) {
	for _, v := range variants {
		w := newSessionFixture(t, xds.ClusterType, v)
		w.wild("a", "b")
		w.sub()
		w.accepts("a b")
		w.wild("a=2")
		m := w.moment()
		n := testing.AllocsPerRun(100, func() {
			if p := w.s.Next(w.Cur, m); !p.Sends() {
				t.Fatal("nothing to send")
			}
		})
		if n != 0 {
			t.Errorf("%v: %v allocations", v, n)
		}
	}
}

func BenchmarkACK(b *testing.B) {
	for _, v := range variants {
		b.Run(v.String(), func(b *testing.B) {
			acknowledge := acknowledging(b, v)
			b.ReportAllocs()
			for b.Loop() {
				acknowledge()
			}
		})
	}
}

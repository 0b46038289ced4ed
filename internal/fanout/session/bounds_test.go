package session

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"weak"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Unanswered responses keep neither bodies nor snapshots alive (P16).
func TestP16_UnansweredKeepsNoBody(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.SotW)
	for i := range 100 {
		w.wild(fmt.Sprintf("cluster-%04d", i))
	}
	w.sub()
	var bodies []weak.Pointer[byte]
	var snapshots []weak.Pointer[snapshot.Snapshot]
	for i := range 20 {
		w.wild(fmt.Sprintf("cluster-0000=%d", i)) // equal content would share a body
		w.Pass(ackTimeout)
		f := w.respond()
		if f == nil {
			t.Fatal("not sent")
		}
		bodies = append(bodies, weak.Make(&f.body[0]))
		snapshots = append(snapshots, weak.Make(w.Cur))
	}
	if len(w.s.pendingACKs.responses) != 20 {
		t.Fatalf("%d unanswered", len(w.s.pendingACKs.responses))
	}
	w.plan, w.frame, *w.frames = Plan{}, nil, frames{} // only the session counts
	runtime.GC()
	runtime.GC()
	alive := func(n int, ok bool) int {
		if ok {
			n++
		}
		return n
	}
	b, s := 0, 0
	for i := range bodies {
		b, s = alive(b, bodies[i].Value() != nil), alive(s, snapshots[i].Value() != nil)
	}
	runtime.KeepAlive(w)
	if b > 1 || s > 1 {
		t.Fatalf("%d bodies and %d snapshots are alive", b, s)
	}
}

// NACKs hold no names that the client unsubscribed from (P15).
func TestP15_NACKsAreBounded(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("keep")
	w.sub("keep")
	w.rejects("keep")
	for i := range 500 {
		n := fmt.Sprintf("n%d", i)
		w.named("-" + n)
		w.sub("keep", n)
		w.respond()
		w.nack()
		w.unsub(n)
	}
	total := 0
	for _, r := range w.s.nacks.list {
		total += len(r.names)
	}
	if total > 3*maxPendingACKs {
		t.Fatalf("%d refusals hold %d names", len(w.s.nacks.list), total)
	}
}

// Merged NACKs stay NACKs: none of their names is sent by itself, and all of them when
// any of it changes (P15).
func TestP15_MergedNACKs(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	var names []string
	for i := range maxPendingACKs + 1 {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	w.named(names...)
	w.sub(names...)
	w.next()
	w.ack()
	for _, n := range names {
		w.named(n + "=2")
		w.rejects(n + "=2")
	}
	w.want("")
	w.named("n00=33")
	w.want("n00=33 n01=2") // the two oldest are one
}

// A client rejected once, and nothing has changed for it since. It keeps no old snapshot alive
// (P16).
func TestP16_NACKPinsNoSnapshot(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.named("a", "b")
	w.sub("a")
	w.rejects("a")
	for i := range 50 {
		w.named([]string{"b=2", "b"}[i%2])
		w.want("")
	}
	if w.s.delivered.snapshot != w.Cur {
		t.Fatalf("it is at generation %d of %d", w.s.delivered.snapshot.Gen, w.Cur.Gen)
	}
}

// Two clients at different snapshots of one lineage, with the same names, do not share a
// frame.
func TestFramesAreNotMixed(t *testing.T) {
	each(t, xds.RouteType, func(a *sessionFixture) {
		b := newSessionFixture(t, xds.RouteType, a.s.form.Variant)
		a.named("x", "y")
		a.sub("x", "y")
		a.accepts("x y")
		a.named("x=2")
		b.Cur, b.subs, b.frames = a.Cur, a.subs, a.frames
		b.sub("x", "y")
		b.accepts("x=2 y")
		a.named("y=2")
		b.Cur = a.Cur
		a.want("x=2 y=2")
		b.want("y=2")
	})
}

// The same names in another order are the same subscription.
func TestPermutedListIsTheSame(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.SotW)
	w.named("a", "b")
	w.sub("a", "b")
	w.want("a b")
	was := w.s.sub.requested
	w.ack("b", "a")
	if w.s.sub.requested != was || w.s.sub.effective != was {
		t.Fatal("another subscription for the same names")
	}
	w.want("")
}

// After a NACK, the followers of all resources in the next full-state response follow it,
// since the client may have applied nothing. So do the followers of newly listed clusters
// (P37).
func TestP37_FollowersAfterANACK(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.wild("a", "b")
	w.sub()
	w.accepts("a b")
	w.wild("a=2", "b=2")
	w.rejects("a=2 b=2")
	w.wild("b=33")
	w.want("a=2 b=33")
	if !slices.Equal(w.follow, []string{"a", "b"}) {
		t.Fatalf("followed by %v", w.follow)
	}
	w = newSessionFixture(t, xds.ClusterType, xds.SotW)
	w.named("a", "b")
	w.sub("a")
	w.want("a")
	w.ack("a", "b")
	w.want("a b")
	if !slices.Equal(w.follow, []string{"b"}) {
		t.Fatalf("followed by %v", w.follow)
	}
}

// A name of a full-state type was pending and turns out to be absent. It is answered by the
// set without it, in the first response and later (P22).
func TestP22_PendingThenAbsent(t *testing.T) {
	w := newSessionFixture(t, xds.ListenerType, xds.SotW)
	w.named("a")
	w.sub("a")
	w.want("a")
	w.ack("a", "b")
	w.want("")
	w.named("-b")
	w.accepts("a")
	w.want("")
	w = newSessionFixture(t, xds.ListenerType, xds.SotW)
	w.named("other")
	w.sub("b")
	w.want("")
	w.named("-b")
	w.want("(empty)")
}

// A delta client by name that already had everything is in step at once (P27).
func TestP27_ClientVersionsAreCurrent(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	w.named("a", "b")
	v := func(n string) string { return w.Resource(n).Version.String() }
	w.send(request{names: []string{"a", "b"}, initial: map[string]string{"a": v("a"), "b": v("b")}})
	w.want("")
	if w.s.delivered.initialResponsePending || w.s.clientVersions != nil || w.s.delivered.snapshot != w.Cur {
		t.Fatalf("not in step: initial response pending %v, %d brought", w.s.delivered.initialResponsePending, len(w.s.clientVersions.initial()))
	}
	w.named("a=2")
	w.want("a=2")
}

// A late NACK of an earlier response is no answer to the newest one. Its names are compared
// when the newest is answered (P12).
func TestP12_LateNACKRelistsNothing(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.SotW)
	w.named("a", "b")
	w.sub("a")
	w.want("a")
	w.named("a=2")
	w.Pass(ackTimeout)
	w.want("a=2")
	if out := w.send(request{names: []string{"a", "b"}, nack: 1}); out.Answer != Nacked || w.s.sub.effective.Names.Has("b") {
		t.Fatalf("verdict %v, names %v", out.Answer, slices.Collect(w.s.sub.effective.Names.All()))
	}
	w.ack()
	w.want("b")
}

// A name that is subscribed again is sent, also if the client already had it and it was not known
// then (P27, P23).
func TestP27_SubscribedAgainIsSent(t *testing.T) {
	w := newSessionFixture(t, xds.RouteType, xds.Delta)
	w.send(request{names: []string{"late"}, initial: map[string]string{"late": w.Resource("late").Version.String()}})
	w.want("")
	w.sub("late")
	w.named("late")
	w.want("late")
}

// The parts of a large delta response are responses of their own (P10, P13, P15), and one response
// for P19: nothing else is sent before all of them are acknowledged, and only then the client has
// the version. A NACK of one concerns that part.
func TestP38_Parts(t *testing.T) {
	w := newSessionFixture(t, xds.ClusterType, xds.Delta)
	w.cut = w.roomFor("a=33", 2)
	w.wild("a", "b", "c", "d", "e")
	w.Cur.Progress = new(snapshot.VersionProgress)
	w.sub("*")
	w.want("a b c d e")
	if w.seq != 3 {
		t.Fatalf("%d parts", w.seq)
	}
	first := w.Cur
	w.wild("f")
	w.want("")
	acks := func(n int, want Outcome) {
		t.Helper()
		if out := w.send(request{ack: n}); out.Answer != Acked || out.Gen != want.Gen || out.Progress != want.Progress {
			t.Errorf("the ACK of part %d: %+v", n, out)
		}
	}
	acks(1, Outcome{})
	w.want("")
	if got := w.s.AckedGeneration(w.Cur, true); got != 0 {
		t.Errorf("after one part, generation %d is acknowledged", got)
	}
	out := w.send(request{nack: 2})
	if out.Answer != Nacked || out.Gen != first.Gen || !slices.Equal(out.Rejected.Names, []string{"c", "d"}) {
		t.Errorf("the NACK of part 2: %+v, %v", out, out.Rejected)
	}
	w.want("")
	acks(3, Outcome{Gen: first.Gen, Progress: first.Progress})
	w.accepts("f")
	w.wild("a=2")
	w.accepts("a=2")
	w.wild("c=2")
	w.accepts("c=2 d")
	w.want("")
}

// However many parts a response has, none is forgotten. Other responses are bounded.
func TestP38_PartsAreNotForgotten(t *testing.T) {
	w := newSessionFixture(t, xds.EndpointType, xds.Delta)
	w.cut = 1
	var all []string
	for i := range 3 * maxPendingACKs {
		all = append(all, fmt.Sprintf("n%03d", i))
	}
	w.named(all...)
	w.sub(all...)
	w.next()
	if n := len(w.s.pendingACKs.responses); n != len(all) {
		t.Fatalf("%d parts are known of %d", n, len(all))
	}
	for i := range 2 * maxPendingACKs { // they do not wait for the ACK
		w.sub(all[i], all[i+1])
		w.next()
	}
	if out := w.send(request{nack: 2}); out.Answer != Nacked {
		t.Errorf("the NACK of a part: %v", out.Answer)
	}
	whole := 0
	for _, f := range w.s.pendingACKs.responses {
		if !f.partFollows {
			whole++
		}
	}
	if whole > maxPendingACKs {
		t.Errorf("%d responses are in flight", whole)
	}
}

// A delta client that owes an ACK costs nothing more with each change that waits for the ACK (P16,
// P19).
func TestP16_WaitingChangesCostNothing(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("n%04d", i))
	}
	for what, sub := range map[string][]string{"wildcard": nil, "names": names} {
		t.Run(what, func(t *testing.T) {
			w := newSessionFixture(t, xds.ClusterType, xds.Delta)
			w.sub(sub...)
			w.origin(sub == nil, names...)
			if f := w.respond(); f == nil {
				t.Fatal("not sent")
			}
			// cost is the allocation of the look at one more change, in bytes.
			cost := func(i int) uint64 {
				w.origin(sub == nil, fmt.Sprintf("%s=%d", names[i], i+2))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				p := w.s.Next(w.Cur, w.moment())
				w.s.Planned(&p)
				runtime.ReadMemStats(&after)
				if p.Sends() || !p.changeWaits {
					t.Fatalf("change %d: %+v", i, p)
				}
				return after.TotalAlloc - before.TotalAlloc
			}
			var last []uint64
			for i := range 300 {
				if n := cost(i); i >= 290 {
					last = append(last, n)
				}
			}
			if slices.Min(last) > 512 {
				t.Errorf("bytes allocated for one of 300 changes: %d", last)
			}
			w.ack()
			if f := w.respond(); f == nil || len(f.resources) != 300 {
				t.Error("the ACK does not send all 300 changes")
			}
		})
	}
}

package fanout

import (
	"cmp"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"

	"xdsrelay/config"
	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/fanout/subscriber/subscribertest"
	"xdsrelay/internal/telemetry"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// A session that nothing concerns falls behind, since its group does not wake
// it, and keeps an old state alive. It is woken for that alone, but not while it
// waits for an answer: it would learn nothing.
func TestP16_SessionBehindIsWoken(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"))
	st, types := still(t, r, xds.ClusterType)
	ty := types[0]
	start := time.Now()
	plan := ty.Next(ty.snapshot(), session.Moment{Now: start, AckTimeout: time.Minute})
	frame := framesOf(plan.To).frame(st, &plan, "id")
	ty.Sent(&plan, frame.Manifest, 1, start)
	woken := func(after time.Duration) bool {
		st.run.dirty.Store(0)
		st.pinned(start.Add(after), map[any]pin{})
		return st.run.dirty.Load()&ty.bit != 0
	}
	if woken(0) {
		t.Error("woken though it is not behind")
	}
	g.Publish(update(t, xds.ClusterType, "b"), update(t, xds.ClusterType, "-b"))
	if woken(time.Minute - 1) {
		t.Error("woken while it waits for an answer")
	}
	if !woken(time.Minute) {
		t.Error("not woken after ack_timeout: a client that never answers would keep the state alive for ever")
	}
	ty.Request(new(xds.Request), ty.Requested(), 1)
	if !woken(0) {
		t.Error("not woken once it was answered")
	}
}

// Sessions that no change concerns are not woken, however often others' resources change:
// until much may be old, or for a minute. A session that waited while it was behind is checked
// at each time.
func TestP16_UnconcernedSessionIsNotWoken(t *testing.T) {
	r := &serverFixture{t: t, groups: &subscribertest.Joiner{}}
	r.srv = NewServer(Options{Joiner: r.groups, Metrics: newMetrics(t), Replica: "replica", Settings: Settings{AckTimeout: 5 * time.Second}, Log: slog.New(slog.DiscardHandler)})
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"))
	st, types := still(t, r, xds.ClusterType)
	if !r.srv.add(st) {
		t.Fatal("not added")
	}
	ty := types[0]
	start := time.Now()
	plan := ty.Next(ty.snapshot(), session.Moment{Now: start, AckTimeout: time.Minute})
	frame := framesOf(plan.To).frame(st, &plan, "id")
	ty.Sent(&plan, frame.Manifest, 1, start)
	ty.Request(new(xds.Request), ty.Requested(), 1)
	w := r.srv.newWatcher()
	woken := func(after time.Duration) bool {
		st.run.dirty.Store(0)
		w.look(start.Add(after))
		return st.run.dirty.Load()&ty.bit != 0
	}
	if woken(0) {
		t.Error("woken though it is not behind")
	}
	g.Publish(update(t, xds.ClusterType, "b"), update(t, xds.ClusterType, "-b"))
	if woken(time.Second) || woken(sweepEvery-1) {
		t.Error("woken for what does not concern it")
	}
	if !woken(sweepEvery) {
		t.Error("not woken after so long: it would keep what it was sent alive for ever")
	}
	snapshot.CountDerived(sweepBytes)
	if !woken(sweepEvery + time.Second) {
		t.Error("not woken though much may be old")
	}

	ty.Sent(&plan, frame.Manifest, 2, start.Add(2*sweepEvery))
	if woken(2*sweepEvery+time.Second) || woken(2*sweepEvery+2*time.Second) {
		t.Error("woken while it waits for an answer")
	}
	if !woken(2*sweepEvery + 6*time.Second) {
		t.Error("not woken when the wait was over")
	}
	if woken(2*sweepEvery + 7*time.Second) {
		t.Error("looked at though it does not wait any more")
	}
}

// What a client that takes nothing keeps of old snapshots counts in each round. That also holds if
// it has nothing to answer: waking it has no effect.
func TestP16_SlowClientsCountEachTime(t *testing.T) {
	r := &serverFixture{t: t, groups: &subscribertest.Joiner{}}
	r.srv = NewServer(Options{Joiner: r.groups, Metrics: newMetrics(t), Replica: "replica", Settings: Settings{AckTimeout: time.Second}, Log: slog.New(slog.DiscardHandler)})
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"))
	st, types := still(t, r, xds.ClusterType)
	if !r.srv.add(st) {
		t.Fatal("not added")
	}
	ty, start := types[0], time.Now()
	plan := ty.Next(ty.snapshot(), session.Moment{Now: start, AckTimeout: time.Second})
	frame := framesOf(plan.To).frame(st, &plan, "id")
	ty.Sent(&plan, frame.Manifest, 1, start)
	st.inFlight.Store(frame)
	st.since.Store(start.UnixNano())
	g.Publish(update(t, xds.ClusterType, "a=2"))
	w := r.srv.newWatcher()
	for round := range 3 {
		w.look(start.Add(time.Minute + time.Duration(round)*time.Second))
		if !w.waiting[st] {
			t.Fatalf("forgotten in round %d", round)
		}
	}
	st.inFlight.Store(nil)
	if w.look(start.Add(time.Minute + 4*time.Second)); w.waiting[st] {
		t.Error("it waits, though it took all and has nothing to answer")
	}
}

// taking is a connection that takes all that is written.
type taking struct{ net.Conn }

func (taking) Write(b []byte) (int, error) { return len(b), nil }

// A client that takes a large message slowly is not cut, however long it takes; one that takes less
// than minProgress in send_timeout is, and pings are less. On a connection that others share, what
// is taken may be theirs: it counts until it is more than all messages of that size. The refusal
// says what was measured.
func TestP16_SlowReaderIsNotCut(t *testing.T) {
	r := &serverFixture{t: t, groups: &subscribertest.Joiner{}}
	r.srv = NewServer(Options{Joiner: r.groups, Metrics: newMetrics(t), SendTimeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	c := &listener.Conn{Conn: taking{}}
	st := &stream{srv: r.srv, conn: c}
	start := time.Now()
	st.since.Store(start.UnixNano())
	st.size.Store(5 << 20)
	var p progress
	text := ""
	cut := func(after time.Duration, took int64) bool {
		xdstest.Must(c.Write(make([]byte, took)))(t)
		p = st.progress(p, start.Add(after))
		refused := r.srv.tooSlow(st, p, start.Add(after))
		if refused != nil {
			text = refused.Error()
		}
		return refused != nil
	}
	for s := range 60 {
		took := int64(17)
		if s%9 == 0 {
			took = minProgress
		}
		if cut(time.Duration(s)*time.Second, took) {
			t.Fatalf("cut after %d s, though it takes something", s)
		}
	}
	if cut(64*time.Second, 17) || !cut(65*time.Second, 17) {
		t.Error("it took nothing but pings since the 54th second, and is not cut after ten")
	}
	if want := "stream: the client received 119 bytes in 11s, and 459687 of the response's 5242880 bytes in all; the relay requires 65536 bytes within downstream.send_timeout (10s)"; text != want {
		t.Errorf("the refusal is %q, want %q", text, want)
	}
	for range 2 { // streams
		if refused := r.srv.admission.Enter(caller("10.0.0.1:1"), c); refused != nil {
			t.Fatal(refused)
		}
	}
	p = progress{}
	st.before.Store(c.Written())
	const share = 4 * (5<<20 + writeBuffer)
	for s := range 100 {
		if cut(time.Duration(s)*time.Second, share/100) {
			t.Fatalf("cut after %d s, though its connection goes on", s)
		}
	}
	if !cut(100*time.Second, 9) {
		t.Error("what another stream takes keeps this one")
	}
	if want := "stream: the client did not receive the response's 5242880 bytes within downstream.send_timeout (10s), while its connection with 2 streams received 21495809 bytes"; text != want {
		t.Errorf("the refusal is %q, want %q", text, want)
	}
	st.since.Store(start.Add(100 * time.Second).UnixNano())
	if cut(101*time.Second, 0) {
		t.Error("the next message is cut for the last one")
	}
}

// What a client has to receive is the part of a response that is in flight, and not all parts
// (P38).
func TestP16_SlowClientsHaveTimeForOnePart(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.SendTimeout = 10 * time.Second })
	u := snapshot.Update{Type: blobType, Wildcard: true}
	for _, n := range names(9) {
		u.Changed = append(u.Changed, sessiontest.New(t, blobType).Resource(n+"="+strings.Repeat("x", 1<<20)))
	}
	r.groups.Group("blobs").Publish(u)
	shared := r.dial()
	r.delta(shared).ask(xds.ClusterType)
	stallOn(r, shared, "blobs")
	var slow *stream
	r.eventually(func() bool {
		for _, st := range r.srv.all() {
			if f := st.inFlight.Load(); f != nil && len(f.bodies) > 1 {
				slow = st
			}
		}
		return slow != nil
	})
	p := progress{since: slow.since.Load(), all: 4 * (3<<20 + writeBuffer)}
	p.at = time.Unix(0, p.since).Add(11 * time.Second)
	if refused := r.srv.tooSlow(slow, p, p.at); refused == nil || !strings.Contains(refused.Error(), "did not receive") {
		t.Errorf("%v", refused)
	}
}

// A message in flight is measured from the second round on. In a push to many clients, most
// messages are in flight in one round only.
func TestP16_MessageIsMeasuredFromTheSecondRound(t *testing.T) {
	c := &listener.Conn{Conn: taking{}}
	st := &stream{conn: c}
	start := time.Now()
	st.since.Store(start.UnixNano())
	xdstest.Must(c.Write(make([]byte, 100)))(t)
	p := st.progress(progress{}, start.Add(time.Second))
	if want := (progress{since: start.UnixNano()}); p != want {
		t.Errorf("in the first round %+v, want %+v", p, want)
	}
	second := start.Add(2 * time.Second)
	p = st.progress(p, second)
	if want := (progress{since: start.UnixNano(), bytes: 100, at: second, all: 100}); p != want {
		t.Errorf("in the second round %+v, want %+v", p, want)
	}
}

// Encoded frames count as memory that may be old.
func TestP16_FramesMayBeOld(t *testing.T) {
	w := newFrameFixture(t, xds.ClusterType, xds.Delta)
	w.wild("a=33")
	w.sub("*")
	before := snapshot.SupersededBytes()
	f := w.next()
	if f == nil || snapshot.SupersededBytes()-before < int64(f.size()) {
		t.Errorf("%d bytes more, of a frame %v", snapshot.SupersededBytes()-before, f)
	}
}

// How much may be old follows pinned_bytes, so that they are kept to.
func TestP16_SweepFollowsPinnedBytes(t *testing.T) {
	for _, c := range []struct{ pinned, bytes int64 }{{0, sweepBytes}, {1 << 40, sweepBytes}, {1600, 100}, {1, 0}} {
		now := time.Now()
		var w sweep
		w.due(now, 1000, c.pinned)
		if c.bytes > 0 && w.due(now, 1000+c.bytes-1, c.pinned) {
			t.Errorf("pinned_bytes %d: due before %d bytes are old", c.pinned, c.bytes)
		}
		if !w.due(now, 1000+c.bytes, c.pinned) {
			t.Errorf("pinned_bytes %d: not due when %d bytes are old", c.pinned, c.bytes)
		}
	}
}

// Messages in flight to clients that take nothing count as kept alive. A message counts once,
// however many streams wait for it, also if keys share it.
func TestP16_InFlightBytesCount(t *testing.T) {
	const size = 100 * 10_000 // of the blobs, a little less than the message has
	for name, tc := range map[string]struct {
		limit int64
		cut   bool
	}{"within": {size * 3 / 2, false}, "more": {size / 2, true}} {
		t.Run(name, func(t *testing.T) {
			r := newServerFixture(t, func(o *Options) { o.SendTimeout, o.Limits.PinnedBytes = time.Hour, tc.limit })
			publishBlobs(r, "blobs", "others")
			stallOn(r, nil, "blobs")
			stallOn(r, nil, "blobs")
			stallOn(r, nil, "others")
			flying := func() (n int) {
				for _, st := range r.srv.all() {
					if st.inFlight.Load() != nil {
						n++
					}
				}
				return n
			}
			r.eventually(func() bool { return flying() == 3 })
			w := r.srv.newWatcher()
			w.look(time.Now().Add(slow / 2))
			if n := r.count(telemetry.LimitPinnedBytes); n > 0 {
				t.Fatalf("%d were cut before anyone can be called slow", n)
			}
			w.look(time.Now().Add(2 * slow))
			if cut := r.count(telemetry.LimitPinnedBytes) > 0; cut != tc.cut {
				t.Errorf("three clients that wait for one message of %d bytes, pinned_bytes %d: one was cut: %t, want %t", size, tc.limit, cut, tc.cut)
			}
		})
	}
}

// The connection of a client that takes nothing is closed, since the status
// that ends its stream would wait behind what it does not take; but not one that
// carries another stream.
func TestP16_HangUp(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.SendTimeout = 40 * time.Millisecond })
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	shared := r.dial()
	other := r.delta(shared)
	other.ask(xds.ClusterType)
	other.want("a ")
	stalledOn(r, shared)
	// The other stream goes on.
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "b"))
	other.want("b ")

	alone := r.dial()
	stalledOn(r, alone)
	for state := alone.GetState(); state == connectivity.Ready; state = alone.GetState() {
		if !alone.WaitForStateChange(xdstest.Context(t), state) {
			t.Fatal("the connection of a client that takes nothing is still open")
		}
	}
	r.counted(telemetry.SendTimeout, 2)
}

// Clients may lose connections that the relay still has, and open new ones. If the relay has as
// many streams as it may have, those end whose clients have not answered a ping. Otherwise they
// stay.
func TestP16_LostStreamsMakeRoom(t *testing.T) {
	r := newServerFixture(t, func(o *Options) { o.Limits.Streams = 2 })
	r.srv.pingAfter.Store(int64(time.Minute))
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	w := r.srv.newWatcher()
	lost := r.delta(nil)
	lost.ask(xds.ClusterType)
	lost.want("a ")
	later := time.Now().Add(time.Minute + pingTime + time.Second)
	w.look(later)
	other := r.delta(nil)
	other.ask(xds.ClusterType)
	other.want("a ") // there was room
	r.wantEnd(r.delta(nil), codes.Unavailable, telemetry.LimitStreams)
	all := r.srv.all()
	slices.SortFunc(all, func(a, b *stream) int { return cmp.Compare(a.id, b.id) })
	first, second := all[0], all[1]
	// The acknowledgement of the first client may arrive after that of the second.
	for !second.conn.HeardAt().After(first.conn.HeardAt()) {
		other.ask(xds.ClusterType, "a")
		other.want("a ")
	}
	due := first.conn.HeardAt().Add(time.Minute + pingTime)
	w.look(due)
	if first.refusal.Load() != nil {
		t.Error("a stream is ended that may still answer a ping")
	}
	w.look(due.Add(time.Nanosecond))
	if s := lost.ends(); s.Code() != codes.Unavailable {
		t.Errorf("the lost stream ended with %v", s)
	}
	next := r.delta(nil)
	next.ask(xds.ClusterType)
	next.want("a ")
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "b"))
	other.want("b ")
}

// A client that is ended releases all that it keeps. No more clients are ended than necessary.
func TestP16_NoMoreClientsEndThanNecessary(t *testing.T) {
	s := NewServer(Options{Joiner: &subscribertest.Joiner{}, Metrics: newMetrics(t), Settings: Settings{Limits: config.Limits{PinnedBytes: 150 << 20}}})
	pins, all := make(map[any]pin), []*stream{}
	for who := range 3 {
		p := &stream{srv: s, fin: silent{}}
		all = append(all, p)
		for what := range 60 {
			pins[who*60+what] = pin{p, 1 << 20}
		}
	}
	ended := func() (n int) {
		for _, p := range all {
			if p.refusal.Load() != nil {
				n++
			}
		}
		return n
	}
	if s.unpin(pins); ended() != 1 {
		t.Errorf("%d of 3 are ended, where one would do", ended())
	}
	// The one that keeps most, not that which keeps the largest.
	most := &stream{srv: s, fin: silent{}}
	pins = map[any]pin{"large": {&stream{srv: s, fin: silent{}}, 100 << 20}, 1: {most, 60 << 20}, 2: {most, 60 << 20}}
	if s.unpin(pins); most.refusal.Load() == nil {
		t.Error("who keeps most is not ended")
	}
}

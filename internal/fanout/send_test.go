package fanout

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"xdsrelay/internal/fanout/listener"
	"xdsrelay/internal/fanout/nonce"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/session/sessiontest"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xdstest"
)

// still is a stream without a connection: what a worker does with it up to the
// send can be looked at step by step.
func still(t testing.TB, r *serverFixture, types ...xds.TypeURL) (*stream, []*streamType) {
	t.Helper()
	return stillOf(t, r, xds.Delta, types...)
}

// stillOf is still of a variant.
func stillOf(t testing.TB, r *serverFixture, v xds.Variant, types ...xds.TypeURL) (*stream, []*streamType) {
	t.Helper()
	st := &stream{id: 1, srv: r.srv, grpc: waiting{ctx: t.Context()}, conn: new(listener.Conn), variant: v, nonces: nonce.New(instance, 1), caller: new(listener.Policy).Caller("10.0.0.1:1", nil)}
	st.run.word.Store(running) // nobody queues it
	node := xdstest.Must(r.srv.nodes.Intern([]byte("\x0a\x01n\x12\x04edge")))(t)
	st.node = node
	st.client = r.groups.Join(subscriber.Info{Node: node, End: st.End})
	for _, url := range types {
		st.req = new(xds.Request)
		if err := st.req.Scan(v, sessiontest.Request{}.Wire(v), 0); err != nil { // of the wildcard
			t.Fatal(err)
		}
		ty, refused := st.join(url)
		if refused != nil {
			t.Fatal(refused)
		}
		if refused := st.apply(ty); refused != nil {
			t.Fatal(refused)
		}
	}
	return st, st.types
}

// A plan that a request has overtaken is not applied.
func TestOvertakenPlanIsStale(t *testing.T) {
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	st, types := still(t, r, xds.ClusterType)
	ty := types[0]
	cur := ty.snapshot()
	plan := ty.Next(cur, session.Moment{Now: time.Now(), AckTimeout: time.Minute})
	frame := framesOf(cur).frame(st, &plan, "id")
	epoch := ty.epoch
	xdstest.NoError(t, st.req.Scan(xds.Delta, sessiontest.Request{Unsubscribe: []string{"*"}}.Wire(xds.Delta), 0))
	if refused := st.apply(ty); refused != nil {
		t.Fatal(refused)
	}
	v := st.newPass()
	if sent, stale := st.commit(&v, 0, &plan, frame, epoch); sent || !stale || ty.SentSnapshot() != nil || ty.PendingACK() {
		t.Fatalf("sent %v, stale %v: %+v", sent, stale, ty.Session)
	}
}

// A stream whose frame another worker builds is parked, with its bit set, and
// is looked at again when the frame is there.
func TestParkedStreamComesBack(t *testing.T) {
	r := newServerFixture(t, nil)
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	st, types := still(t, r, xds.ClusterType)
	ty := types[0]
	plan := ty.Next(ty.snapshot(), session.Moment{Now: time.Now(), AckTimeout: time.Minute})
	cache := framesOf(ty.snapshot())
	building := new(cell)
	cache.mu.Lock()
	cache.byKey.put(plan.Key, building)
	cache.mu.Unlock()
	v := st.newPass()
	if !st.sendType(&v, 0) {
		t.Fatal("something could follow")
	}
	if st.run.dirty.Load()&ty.bit == 0 || !st.run.sending() || len(building.waiters) != 1 {
		t.Fatalf("dirty %b, sending %v, %d wait", st.run.dirty.Load(), st.run.sending(), len(building.waiters))
	}
	if queue, ended := st.run.leave(); queue || ended {
		t.Fatal("a parked stream is queued")
	}
	if !st.run.completed(building.waiters[0].n) {
		t.Fatal("it is not queued when the frame is there")
	}
}

// A change of a later type that was there before the clusters were sent does not release the next
// clusters (P19).
func TestP19_OnlyLaterChanges(t *testing.T) {
	r := newServerFixture(t, nil)
	g := r.groups.Group("edge")
	g.Publish(update(t, xds.ClusterType, "a"), update(t, xds.ListenerType, "l"))
	st, _ := still(t, r, xds.ClusterType, xds.ListenerType)
	pending := func() bool {
		v := st.newPass()
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.laterPending(&v, 0)
	}
	v := st.newPass()
	// What comes while the response is made is later as well.
	g.Publish(update(t, xds.ListenerType, "m"))
	v.markLater(0)
	if !pending() {
		t.Fatal("what came while the clusters were encoded is no later change")
	}
	v = st.newPass()
	v.markLater(0)
	before := pending()
	g.Publish(update(t, xds.ListenerType, "n"))
	if after := pending(); before || !after {
		t.Fatalf("before the change %v, after it %v", before, after)
	}
}

// answered is a still stream of a variant that is in step, and what has its
// newest response, a change, acknowledged once more: all that happens to an ACK
// after it was received.
func answered(t testing.TB, r *serverFixture, v xds.Variant) func() {
	t.Helper()
	r.groups.Group("edge").Publish(update(t, xds.ClusterType, "a"))
	st, types := stillOf(t, r, v, xds.ClusterType)
	ty, now := types[0], time.Now()
	plan := ty.Next(ty.snapshot(), session.Moment{Now: now, AckTimeout: time.Minute})
	frame := *framesOf(ty.snapshot()).frame(st, &plan, "id").Manifest
	frame.Received = ty.track.Began().Add(time.Nanosecond) // since the client came: it counts as propagation
	seq := st.nonces.Reserve(1)
	nonce := st.nonces.Append(nil, seq)
	ty.Sent(&plan, &frame, seq, now)
	sent := ty.Session
	url, answers := protowire.Number(4), protowire.Number(5)
	if v == xds.Delta {
		url, answers = 2, 6
	}
	ack := protowire.AppendString(protowire.AppendTag(nil, url, protowire.BytesType), string(xds.ClusterType))
	ack = protowire.AppendBytes(protowire.AppendTag(ack, answers, protowire.BytesType), nonce)
	return func() {
		ty.Session = sent
		st.req = requests.Get().(*xds.Request)
		refused := st.handle(ack, false)
		requests.Put(st.req)
		st.req = nil
		if refused != nil || ty.PendingACK() {
			t.Fatal(refused, "no ACK")
		}
	}
}

// The lists of several types may be equal, or begin alike. A type's request changes only its own
// subscription (P20, P51).
func TestP20_ListsOfOtherTypes(t *testing.T) {
	r := newServerFixture(t, nil)
	st, types := stillOf(t, r, xds.SotW, xds.ClusterType, xds.EndpointType)
	for _, c := range []struct {
		of    int
		names []string
	}{{0, []string{"a"}}, {1, []string{"a", "b"}}, {0, []string{"a", "b"}}, {0, []string{"a", "b", "c"}}, {1, []string{"a", "b", "c", "d"}}, {1, []string{"a", "b", "c"}}, {0, []string{"a"}}} {
		before := types[1-c.of].Requested()
		msg := sessiontest.Request{Names: c.names}.Wire(xds.SotW)
		msg = protowire.AppendString(protowire.AppendTag(msg, 4, protowire.BytesType), string(types[c.of].Type.URL))
		if refused := st.handle(msg, false); refused != nil {
			t.Fatal(refused)
		}
		if got := slices.Collect(types[c.of].Requested().Names.All()); !slices.Equal(got, c.names) {
			t.Errorf("%s of %q requests %q", types[c.of].Type.URL, c.names, got)
		}
		if types[1-c.of].Requested() != before {
			t.Errorf("%s of %q changes the other type", types[c.of].Type.URL, c.names)
		}
	}
}

// All in, an ACK costs no memory, and is counted with the time that the change
// took.
func TestHandledACKAllocatesNothing(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newServerFixture(t, nil)
		ack := answered(t, r, v)
		if n := testing.AllocsPerRun(100, ack); n >= 1 { // a pool may have been emptied
			t.Errorf("%v allocations", n)
		}
		for _, line := range []string{`downstream_acks_total{type="CDS"} 101`, `propagation_seconds_count{type="CDS"} 101`} {
			if !strings.Contains(r.scrape(), "xdsrelay_"+line+"\n") {
				t.Errorf("the metrics have no %s", line)
			}
		}
	})
}

// The cost of an ACK of a change after it was received: scanning, clock, locks, session, counters
// and histogram.
func BenchmarkHandle(b *testing.B) {
	for _, v := range variants {
		b.Run(v.String(), func(b *testing.B) {
			ack := answered(b, newServerFixture(b, nil), v)
			b.ReportAllocs()
			for b.Loop() {
				ack()
			}
		})
	}
}

package upstream

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"xdsrelay/internal/xds"
)

// A wildcard that nobody wants any more is of no concern to the other types:
// the stream goes on, and what still comes is dropped.
func TestP64_AWildcardThatEndsLeavesTheStreamOpen(t *testing.T) {
	r := newRig(t, xds.SotW)
	r.want(named(eds, "a"), all(cds), all(rds))
	r.sent("EDS [a] node", "CDS []", "RDS [*]")
	r.respond(resp{typ: cds, version: "1", res: clusters("x")})
	r.respond(resp{typ: rds, version: "1", res: clusters("x")})
	r.sent("CDS [] version 1 nonce 1", "RDS [*] version 1 nonce 2")
	if !r.want(named(eds, "a")) {
		t.Fatal("the stream ends with two of its wildcards")
	}
	r.sent() // they stay asked, as they were asked
	_, n := r.respond(resp{typ: cds, version: "2", res: clusters("x", "y")})
	if n.unasked != 2 {
		t.Errorf("%d unasked, want 2", n.unasked)
	}
	r.holds(cds)
	r.respond(resp{typ: rds, version: "2", res: clusters("x", "x")})
	r.sent("CDS [] version 2 nonce 3", "RDS [*] version 1 nonce 4 NACK")

	d := newRig(t, xds.Delta)
	d.want(named(eds, "a"), all(cds))
	d.sent("EDS +[a] node", "CDS +[*]")
	d.respond(resp{typ: cds, res: clusters("x")})
	if !d.want(named(eds, "a")) {
		t.Fatal("the stream ends with one of its wildcards")
	}
	d.respond(resp{typ: cds, res: clusters("y")}) // crossed the request
	d.sent("CDS nonce 1", "CDS nonce 2", "CDS -[*]")
	d.holds(cds)
	d.sent()
}

// What the origin remembers of the stream would be left out of the answer.
func TestP64_AWildcardThatEndedTakesANewStreamOnceTheTypeIsWantedAgain(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		for what, again := range map[string]xds.TypeInterest{"names": named(cds, "x"), "the wildcard": all(cds)} {
			r := newRig(t, v)
			r.want(named(eds, "a"), all(cds))
			r.next()
			r.next()
			r.want(named(eds, "a"))
			r.next()
			if !r.want(named(eds, "a", "b")) {
				t.Error("another type takes a new stream")
			}
			if r.want(named(eds, "a"), again) {
				t.Errorf("%s on the same stream", what)
			}
		}
		r := newRig(t, v) // nothing at all is wanted: nothing is left asked for long
		r.want(named(eds, "a"), all(cds))
		r.next()
		r.next()
		r.want(named(eds, "a"))
		if r.want() {
			t.Error("the stream stays for a wildcard that nobody wants")
		}
	})
}

// A client that comes and goes with a wildcard of its own keeps P57 from nobody
// of its key: a name has its whole time once more on a stream opened anew, and
// then the rest of that.
func TestP57_TheClockGoesOnOverStreamsThatTheRelayOpensAnew(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newRig(t, v)
		flush := func() {
			for q := r.next(); q != nil; q = r.next() {
				r.talk.written(r.now)
			}
		}
		r.want(named(eds, "a"))
		flush()
		reopened := 0
		step := func(types ...xds.TypeInterest) {
			if !r.want(types...) {
				r.reopen()
				reopened++
				r.now = r.now.Add(time.Hour) // between the streams no time runs
			}
			flush()
			r.pass(4 * time.Second)
		}
		step(named(eds, "a"), all(odd))
		step(named(eds, "a"))
		step(named(eds, "a", "b"), all(odd)) // opened anew: a has its time once more
		step(named(eds, "a", "b"))
		r.is(eds, xds.Pending, "a")
		step(named(eds, "a", "b", "c"), all(odd)) // and no more: 8 s have passed
		step(named(eds, "a", "b", "c"))           // 16 s
		if reopened != 2 {
			t.Errorf("opened anew %d times, want twice", reopened)
		}
		r.is(eds, xds.Absent, "a")
		r.is(eds, xds.Pending, "b")
		r.pass(7*time.Second - 1)
		r.is(eds, xds.Pending, "b")
		r.pass(1)
		r.is(eds, xds.Absent, "b")
	})
}

// Opened anew twice before anything was written.
func TestP57_TheClockGoesOnThoughTheFirstRequestWasNotWritten(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newRig(t, v)
		r.want(named(eds, "a"))
		r.flush()
		r.reopen()
		r.flush()
		r.pass(10 * time.Second)
		r.reopen()
		r.reopen() // nothing was even asked
		r.next()
		r.reopen() // asked, not written
		r.next()
		r.talk.written(r.now)
		r.pass(5*time.Second - 1)
		r.is(eds, xds.Pending, "a")
		r.pass(1)
		r.is(eds, xds.Absent, "a")
	})
}

// A name that was let go in between is asked for anew, with a clock of its own.
func TestP57_OnlyWhatIsStillWantedKeepsItsClock(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newRig(t, v)
		r.want(named(eds, "a", "b", "c"), all(cds))
		r.flush()
		r.reopen()
		r.flush()
		r.pass(10 * time.Second)
		r.set(named(eds, "b", "c"), named(cds, "x"))
		if r.want(named(eds, "a", "b"), named(cds, "x")) {
			t.Fatal("names after a wildcard on the same stream")
		}
		r.reopen()
		r.next()
		r.next()
		r.talk.written(r.now)
		r.want(named(eds, "a", "b", "c"), named(cds, "x"))
		r.next()
		r.talk.written(r.now)
		r.pass(5 * time.Second)
		r.is(eds, xds.Absent, "b")
		r.is(eds, xds.Pending, "a", "c")
		r.pass(10 * time.Second)
		r.is(eds, xds.Absent, "a", "c")
	})
}

func TestP57_TheClockGoesOnOverStreamsOpenedAnewOnTheWire(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		f := startFake(t)
		r := startRelay(t, Options{Variant: v, AbsentAfter: time.Second}, f.address)
		_, other := r.stream(named(rds, "b")) // so that the origin is no mute one
		f.next().send(resp{typ: rds, res: clusters("b")})
		other.untilNames(t, rds, "b")
		stream, sink := r.stream(named(eds, "a"), all(cds))
		absent := func() bool {
			sink.mu.Lock()
			defer sink.mu.Unlock()
			return sink.presence(eds, "a") == xds.Absent
		}
		next := []xds.TypeInterest{named(cds, "x"), all(cds)}
		for start, i := time.Now(), 0; !absent(); i++ {
			if time.Since(start) > patience {
				t.Fatal("a is not taken for absent while the stream is opened anew")
			}
			s := f.next()
			s.request()
			s.request()
			stream.SetInterest(sink.want(named(eds, "a"), next[i%2]))
		}
	})
}

// A stream that ended otherwise stops the clocks.
func TestP57_AFailureStopsTheClocks(t *testing.T) {
	r := startRelay(t, Options{}, "127.0.0.1:1")
	s := r.client.NewStream("key", nil, newTestSink()).line(r.client.sites[0], nil, nil)
	s.carried = []batch{{typ: eds, names: xds.NewNameSet("a")}}
	s.ended(errGarbage)
	if s.carried != nil {
		t.Error("the clocks are carried over a failure")
	}
}

// One type's wildcard comes and goes, the others are served on the same stream.
func TestP64_AWildcardEndsAtAControlPlane(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		clusters := cachev3.NewLinearCache(string(cds), cachev3.WithInitialResources(map[string]types.Resource{"x": &clusterv3.Cluster{Name: "x"}}))
		endpoints := cachev3.NewLinearCache(string(eds), cachev3.WithInitialResources(map[string]types.Resource{"a": assignment("a", 0)}))
		both := &cachev3.MuxCache{
			Classify:      func(r *cachev3.Request) string { return r.GetTypeUrl() },
			ClassifyDelta: func(r *cachev3.DeltaRequest) string { return r.GetTypeUrl() },
			Caches:        map[string]cachev3.Cache{string(cds): clusters, string(eds): endpoints},
		}
		p := startControlPlane(t, both)
		r := startRelay(t, Options{Variant: v}, p.address)
		stream, sink := r.stream(named(eds, "a"), all(cds))
		sink.untilNames(t, cds, "x")
		sink.untilNames(t, eds, "a")
		if err := endpoints.UpdateResource("b", assignment("b", 0)); err != nil {
			t.Fatal(err)
		}
		stream.SetInterest(sink.want(named(eds, "a", "b")))
		sink.untilNames(t, eds, "a", "b")
		if err := clusters.UpdateResource("y", &clusterv3.Cluster{Name: "y"}); err != nil {
			t.Fatal(err)
		}
		opened := func() (n int) {
			for _, st := range sink.statuses {
				if st.Connected {
					n++
				}
			}
			return n
		}
		sink.until(t, "one stream", func() bool { return opened() == 1 })
		stream.SetInterest(sink.want(named(eds, "a", "b"), all(cds)))
		sink.until(t, "a second stream", func() bool { return opened() == 2 })
		sink.untilNames(t, cds, "x", "y")
		sink.untilNames(t, eds, "a", "b")
		sink.until(t, "no third one", func() bool { return opened() == 2 })
	})
}

// The clocks of one stream and of the one before end in the order of their
// times, not of their beginnings.
func TestP57_TheOldestClockEndsFirst(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		r := newRig(t, v)
		r.want(named(eds, "a"))
		r.flush()
		r.reopen()
		r.flush()
		r.pass(10 * time.Second)
		r.set(named(rds, "n"), named(eds, "b", "a"))
		r.reopen()
		r.flush()
		r.pass(5 * time.Second)
		r.is(eds, xds.Absent, "a")
		r.is(eds, xds.Pending, "b")
		r.is(rds, xds.Pending, "n")
		r.pass(10 * time.Second)
		r.is(eds, xds.Absent, "b")
		r.is(rds, xds.Absent, "n")
	})
}

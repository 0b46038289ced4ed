package upstream

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"weak"

	"xdsrelay/internal/xds"
)

// streamOf returns the next stream whose first request is for this type. It ends all others before
// it.
func (f *fakeOrigin) streamOf(label string) *fakeStream {
	f.t.Helper()
	for {
		s := f.next()
		if strings.HasPrefix(s.request(), label+" ") {
			return s
		}
		s.done <- nil
	}
}

// The second stream of a key uses the first one's origin, whatever its own order says. It goes on
// alone when the first one has ended.
func TestP50_SecondStreamFollowsTheFirst(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		preferred, standby := startFake(t), startFake(t)
		r := startRelay(t, v, Options{}, preferred.address, standby.address)
		first, firstSink, b := r.failOver(preferred, standby, named(rds, "a"))
		b.send(resp{Type: rds, Resources: clusters("a")})
		firstSink.from(t, rds, standby.address)

		sink := newTestSink()
		second := r.client.NewSource(testKey, nil, sink, first.Current())
		r.start(second, sink, named(cds, "c"))
		s := standby.streamOf("CDS") // not at the preferred one
		s.send(resp{Type: cds, Resources: clusters("c")})
		sink.from(t, cds, standby.address)
		for range 2 { // its failures change nothing
			s.done <- nil
			s = standby.streamOf("CDS")
		}

		preferred.streamOf("RDS").send(resp{Type: rds, Resources: clusters("a")}) // a probe
		preferred.streamOf("CDS").send(resp{Type: cds, Resources: clusters("c")})
		firstSink.from(t, rds, preferred.address)
		sink.from(t, cds, preferred.address)
	})
}

// A second stream chooses its origin itself once the first one has ended.
func TestP50_SecondStreamOutlivesTheFirst(t *testing.T) {
	preferred, standby := startFake(t), startFake(t)
	r := startRelay(t, xds.Delta, Options{}, preferred.address, standby.address)
	ctx, end := context.WithCancel(r.ctx)
	first := r.client.NewSource(testKey, nil, newTestSink(), nil)
	first.SetInterest(newTestSink().Want(named(rds, "a")))
	ended := make(chan error, 1)
	go func() { ended <- first.Run(ctx) }()
	preferred.streamOf("RDS")

	sink := newTestSink()
	second := r.client.NewSource(testKey, nil, sink, first.Current())
	r.start(second, sink, named(cds, "c"))
	s := preferred.streamOf("CDS")
	s.send(resp{Type: cds, Resources: clusters("c")})
	sink.from(t, cds, preferred.address)
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	select {
	case <-s.Context().Done():
		t.Error("the second stream ended with the first")
	default:
	}
	s.done <- nil
	for range 2 {
		preferred.streamOf("CDS").done <- nil
	}
	standby.streamOf("CDS").send(resp{Type: cds, Resources: clusters("c")})
	sink.from(t, cds, standby.address)
}

// A second stream does not keep an ended first stream in memory. A key may open and close second
// streams as often as its clients' subscriptions change.
func TestP50_EndedStreamIsReleased(t *testing.T) {
	c, err := New(Options{Origins: []OriginOptions{{Address: "127.0.0.1:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	var ended []weak.Pointer[Source]
	s := c.NewSource(testKey, nil, newTestSink(), nil)
	for range 10 {
		ended = append(ended, weak.Make(s))
		s = c.NewSource(testKey, nil, newTestSink(), s.Current())
	}
	runtime.GC()
	kept := 0
	for _, p := range ended {
		if p.Value() != nil {
			kept++
		}
	}
	if kept > 1 {
		t.Errorf("%d of %d streams are still held", kept, len(ended))
	}
	runtime.KeepAlive(s)
}

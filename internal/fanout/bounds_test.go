package fanout

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/encoding"

	"xdsrelay/internal/xds"
)

// The frames of a snapshot take a bounded number of bytes, however many
// different ones a client has made.
func TestP16_FrameCacheIsBoundedInBytes(t *testing.T) {
	w := newFrameFixture(t, "type.googleapis.com/acme.Thing", xds.Delta)
	var specs, names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("r%04d", i))
		specs = append(specs, names[i]+"="+strings.Repeat("x", 1000))
	}
	w.named(specs...)
	for i := range 200 {
		w.sub(names[i%100:]...) // P23: subscribed again
		if w.next() == nil {
			t.Fatal("not answered")
		}
		w.ack()
	}
	c := framesOf(w.Cur)
	limit := 2*w.Cur.Bytes + frameBytes
	for name, l := range map[string]struct {
		bytes int64
		cells []*cell
	}{"by key": {c.byKey.bytes, c.byKey.all()}, "by content": {c.byContent.bytes, c.byContent.all()}} {
		sum := int64(0)
		for _, cell := range l.cells {
			sum += int64(cell.frame.size())
		}
		if sum != l.bytes || sum > limit {
			t.Errorf("%s: %d bytes, counted as %d, limit %d", name, sum, l.bytes, limit)
		}
	}
	if c.byContent.bytes == 0 {
		t.Error("nothing is cached")
	}
	w.Cur.Release()
	if framesOf(w.Cur).byContent.bytes != 0 {
		t.Error("Release keeps the frames")
	}
}

// all are the cells of a layer.
func (l *layer[K]) all() []*cell {
	switch {
	case l.cells != nil:
		return l.cells.Values()
	case l.alone != nil:
		return []*cell{l.alone}
	}
	return nil
}

// A layer of one cell counts as one of many does, and hands it over.
func TestP16_FrameCacheOfOne(t *testing.T) {
	l := layer[int]{max: 100}
	made := func(k, bytes int) *cell {
		c := new(cell)
		l.put(k, c)
		l.finish(k, c, built{frame: &Frame{bodies: [][]byte{make([]byte, bytes)}}})
		return c
	}
	if l.get(1) != nil {
		t.Error("there is one before any was made")
	}
	first := made(1, 200)
	if l.get(1) != first || l.get(2) != nil || l.bytes != 200 || l.cells != nil {
		t.Errorf("with the first: %d bytes", l.bytes)
	}
	again := made(1, 60) // another of the same hash
	if l.get(1) != again || l.bytes != 60 {
		t.Errorf("with another in its place: %d bytes", l.bytes)
	}
	second := made(2, 30)
	if l.get(1) != again || l.get(2) != second || l.bytes != 90 {
		t.Errorf("with a second: %d bytes", l.bytes)
	}
	third := made(3, 70) // over the limit without the oldest
	if l.get(1) != nil || l.get(2) != second || l.get(3) != third || l.bytes != 100 {
		t.Errorf("with a third: %d bytes", l.bytes)
	}
}

// With a compressor linked in, a client's grpc-accept-encoding would have each
// response compressed for itself, and its tail freed before it has left.
func TestNoCompressor(t *testing.T) {
	if encoding.GetCompressor("gzip") != nil {
		t.Fatal("something imports grpc's gzip: the codec's buffers are not sent as they are any more")
	}
}

// A frame for a client that alone has its subscription takes no place among those
// that others may ask for; it is the same, and its bytes are shared.
func TestFrameOfASoleSubscription(t *testing.T) {
	var bodies [2][]byte
	var cached, built [2]int
	for i, sole := range []bool{false, true} {
		w := newFrameFixture(t, "type.googleapis.com/acme.Thing", xds.Delta)
		w.named("a", "b")
		w.sub("a")
		w.s.Subscription().Unshared.Store(sole)
		f := w.next()
		if f == nil {
			t.Fatal("not answered")
		}
		c := framesOf(w.Cur)
		bodies[i], cached[i], built[i] = f.bodies[0], len(c.byKey.all()), len(c.byContent.all())
	}
	if string(bodies[0]) != string(bodies[1]) {
		t.Errorf("%q and %q", bodies[0], bodies[1])
	}
	if cached != [2]int{1, 0} || built != [2]int{1, 1} {
		t.Errorf("by key %d, by content %d", cached, built)
	}
}

package fanout

import (
	"time"

	"xdsrelay/internal/xds"
)

// frames are those of all snapshots that anybody has yet: keys of equal resources
// send the same bytes. A frame is owned by who has it, the cache of a snapshot or a
// message in flight, and goes with the last of them; the sets only tell that it is
// there, and have as many entries as frames are kept at once, and were dropped
// since the last garbage collection. They are many so that keys seldom meet.
//
// What one client alone asks for in its group (Subscription.Sole) is here as well:
// of keys of one client each, all are like that.
var frames [64]xds.WeakSet[Frame]

// sharedFrame returns the frame of hash h that is equal, or else the one made. What
// is made may be lost to one that another worker made meanwhile. equal is called
// under the set's lock; make is not.
func sharedFrame(h uint64, equal func(*Frame) bool, make func() *Frame) *Frame {
	set := &frames[h%uint64(len(frames))]
	if f := set.Find(h, equal); f != nil {
		return f
	}
	return set.Keep(h, make(), equal)
}

// newFrame encodes a response. lefts is what is left of the TTLs in it.
func newFrame(body *xds.Body, c *content, to *xds.Snapshot, lefts []time.Duration) *Frame {
	bytes := body.Encode()
	xds.Derived(int64(len(bytes)))
	return &Frame{manifest: c.manifest(to), body: bytes, typ: body.Type, by: body.Identifier, form: body.Form, wire: body.Version,
		resources: c.changed, beats: c.beats, removed: c.removed, errors: c.errors, lefts: lefts}
}

// speaks reports whether f, which may be of another key and tenant, is to the byte
// this response: its message, and what sessions keep of it but for when it was
// received. The hash by which f was found stands for nothing.
func (f *Frame) speaks(body *xds.Body, c *content, to *xds.Snapshot, lefts []time.Duration) bool {
	return f.typ == body.Type &&
		f.by == body.Identifier &&
		f.version == to.Version &&
		f.took == c.took &&
		f.renewed == c.renewed &&
		f.holds(body.Form, body.Version, c, lefts)
}

// at returns the frame for a snapshot whose newest part was received then, with all
// that is large shared.
func (f *Frame) at(received time.Time) *Frame {
	if f.received.Equal(received) {
		return f
	}
	own, m := *f, *f.manifest
	m.received = received
	own.manifest, own.first = &m, f
	return &own
}

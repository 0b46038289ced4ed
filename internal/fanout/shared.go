package fanout

import (
	"hash/maphash"
	"slices"
	"time"

	"xdsrelay/internal/fanout/session"
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

// share returns the frame with this content, building it if no snapshot of any key
// has one that says the same. Two workers may build the same at the same time, if
// they came to it by different keys; one of the two stays.
func (fc *frameCache) share(to *xds.Snapshot, body *xds.Body, c *session.Content) *Frame {
	var lefts []time.Duration
	if body.Timed {
		lefts = c.Lefts(body.Now)
	}
	h := hashContent(body, c, lefts)
	fc.mu.Lock()
	at := fc.byContent.get(h)
	fc.mu.Unlock()
	if at != nil && at.frame.holds(body, c, lefts) {
		return at.frame
	}
	f := sharedFrame(h, func(f *Frame) bool { return f.speaks(body, c, to, lefts) }, func() *Frame {
		return newFrame(body, c, to, lefts)
	}).at(to.Received)
	fc.mu.Lock()
	at = new(cell)
	fc.byContent.put(h, at) // in the place of another frame of this hash, if there is one
	fc.byContent.finish(h, at, made{frame: f})
	fc.mu.Unlock()
	return f
}

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
func newFrame(body *xds.Body, c *session.Content, to *xds.Snapshot, lefts []time.Duration) *Frame {
	bytes := body.Encode()
	xds.Derived(int64(len(bytes)))
	return &Frame{Manifest: c.Manifest(to), body: bytes, typ: body.Type, by: body.Identifier, form: body.Form, wire: body.Version,
		resources: c.Changed, beats: c.Beats, removed: c.Removed, errors: c.Errors, lefts: lefts}
}

// speaks reports whether f, which may be of another key and tenant, is to the byte
// this response: its message, and what sessions keep of it but for when it was
// received. The hash by which f was found stands for nothing.
func (f *Frame) speaks(body *xds.Body, c *session.Content, to *xds.Snapshot, lefts []time.Duration) bool {
	return f.typ == body.Type &&
		f.by == body.Identifier &&
		f.Version == to.Version &&
		f.HeartbeatVersion == c.HeartbeatVersion &&
		f.Renewed == c.Renewed &&
		f.holds(body, c, lefts)
}

// holds reports whether this is what a frame of the same snapshot is made of.
func (f *Frame) holds(body *xds.Body, c *session.Content, lefts []time.Duration) bool {
	return f.form == body.Form && f.wire == body.Version && f.OnlyRenewals == c.OnlyRenewals &&
		slices.Equal(f.resources, c.Changed) && slices.Equal(f.beats, c.Beats) && slices.Equal(f.removed, c.Removed) &&
		slices.Equal(f.errors, c.Errors) && slices.Equal(f.lefts, lefts) && slices.Equal(f.Follows, c.Follows) &&
		slices.Equal(f.LaterErrors, c.LaterErrors)
}

var contentSeed = maphash.MakeSeed()

// hashContent is a hash over the identity of the resources, which are shared wherever
// they are equal, and the rest.
func hashContent(body *xds.Body, c *session.Content, lefts []time.Duration) uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	maphash.WriteComparable(&h, body.Form)
	_, _ = h.WriteString(body.Version)
	for _, rs := range [...][]*xds.Resource{c.Changed, c.Beats} {
		maphash.WriteComparable(&h, len(rs))
		for _, r := range rs {
			maphash.WriteComparable(&h, r)
		}
	}
	for _, n := range c.Removed {
		_, _ = h.WriteString(n)
		_ = h.WriteByte(0)
	}
	for _, e := range c.Errors {
		maphash.WriteComparable(&h, e)
	}
	for _, d := range lefts {
		maphash.WriteComparable(&h, d)
	}
	return h.Sum64()
}

// at returns the frame for a snapshot whose newest part was received then, with all
// that is large shared.
func (f *Frame) at(received time.Time) *Frame {
	if f.Received.Equal(received) {
		return f
	}
	own, m := *f, *f.Manifest
	m.Received = received
	own.Manifest, own.first = &m, f
	return &own
}

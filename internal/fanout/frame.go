package fanout

import (
	"hash/maphash"
	"slices"
	"time"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Frame is an encoded response without nonce: one contiguous body. All streams that need the same
// response share it, and it is never pooled. It is immutable.
type Frame struct {
	*session.Manifest
	body []byte

	// What it is made of, besides the manifest.
	typ        xds.TypeURL
	identifier string // control_plane.identifier
	form       xds.Form
	version    string // version_info or system_version_info
	resources  []*xds.Resource
	heartbeats []*xds.Resource
	removed    []string
	errors     []*xds.ResourceError
	ttls       []time.Duration // what is left of the TTLs

	// first is the frame whose bytes this one shares; nil: none. It keeps that one alive, so that
	// others find it.
	first *Frame
}

// emptyFrame: there is nothing to send.
var emptyFrame = &Frame{Manifest: new(session.Manifest)}

// Empty reports whether there is nothing to send.
func (f *Frame) Empty() bool { return f.body == nil }

// newFrame encodes a response. ttls is what is left of the TTLs in it.
func newFrame(body *xds.Body, c *session.Content, to *snapshot.Snapshot, ttls []time.Duration) *Frame {
	bytes := body.Encode()
	snapshot.Derived(int64(len(bytes)))
	return &Frame{Manifest: c.Manifest(to), body: bytes, typ: body.Type, identifier: body.Identifier, form: body.Form, version: body.Version,
		resources: c.Changed, heartbeats: c.Beats, removed: c.Removed, errors: c.Errors, ttls: ttls}
}

// frames are the frames of all snapshots. Keys with equal resources send the same bytes. The cache
// of a snapshot, or a message in flight, owns a frame, and it goes with the last of them. The sets
// here only find it. They have as many entries as there are frames, and as were dropped since the
// last garbage collection. There are many sets so that workers seldom wait for each other.
//
// The frames of subscriptions that one client has alone (Subscription.Sole) are here as well: with
// a key for each client, all are of that kind.
var frames [64]xds.WeakSet[Frame]

// share returns the frame with this content. It builds the frame if no snapshot of any key has an
// equal one. Two workers may build the same frame at the same time, for different keys; then one
// of the two stays.
func (fc *frameCache) share(to *snapshot.Snapshot, body *xds.Body, c *session.Content) *Frame {
	var ttls []time.Duration
	if body.Timed {
		ttls = c.Lefts(body.Now)
	}
	h := hashContent(body, c, ttls)
	fc.mu.Lock()
	at := fc.byContent.get(h)
	fc.mu.Unlock()
	if at != nil && at.frame.sameContent(body, c, ttls) {
		return at.frame
	}
	f := sharedFrame(h, func(f *Frame) bool { return f.equals(body, c, to, ttls) }, func() *Frame {
		return newFrame(body, c, to, ttls)
	}).receivedAt(to.Received)
	fc.mu.Lock()
	at = new(cell)
	fc.byContent.put(h, at) // it replaces another frame of this hash
	fc.byContent.finish(h, at, built{frame: f})
	fc.mu.Unlock()
	return f
}

// sharedFrame returns the frame of hash h that is equal, or else a new one. A new one is dropped
// if another worker made an equal one meanwhile. equal is called under the set's lock; make is
// not.
func sharedFrame(h uint64, equal func(*Frame) bool, make func() *Frame) *Frame {
	set := &frames[h%uint64(len(frames))]
	if f := set.Find(h, equal); f != nil {
		return f
	}
	return set.Keep(h, make(), equal)
}

// equals reports whether f is this response, byte for byte, and whether sessions keep the same of
// it, except for the time at which it was received. f may be of another key. The hash by which f
// was found proves nothing.
func (f *Frame) equals(body *xds.Body, c *session.Content, to *snapshot.Snapshot, ttls []time.Duration) bool {
	return f.typ == body.Type &&
		f.identifier == body.Identifier &&
		f.Version == to.Version &&
		f.HeartbeatVersion == c.HeartbeatVersion &&
		f.Renewed == c.Renewed &&
		f.sameContent(body, c, ttls)
}

// sameContent reports whether f has this content, if it is a frame of the same snapshot.
func (f *Frame) sameContent(body *xds.Body, c *session.Content, ttls []time.Duration) bool {
	return f.form == body.Form && f.version == body.Version && f.OnlyRenewals == c.OnlyRenewals &&
		slices.Equal(f.resources, c.Changed) && slices.Equal(f.heartbeats, c.Beats) && slices.Equal(f.removed, c.Removed) &&
		slices.Equal(f.errors, c.Errors) && slices.Equal(f.ttls, ttls) && slices.Equal(f.Follows, c.Follows) &&
		slices.Equal(f.LaterErrors, c.LaterErrors)
}

var contentSeed = maphash.MakeSeed()

// hashContent is a hash over the content. Resources are hashed by identity, since equal ones are
// shared.
func hashContent(body *xds.Body, c *session.Content, ttls []time.Duration) uint64 {
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
	for _, d := range ttls {
		maphash.WriteComparable(&h, d)
	}
	return h.Sum64()
}

// receivedAt returns the frame for a snapshot whose newest part was received then. It shares all
// that is large.
func (f *Frame) receivedAt(received time.Time) *Frame {
	if f.Received.Equal(received) {
		return f
	}
	own, m := *f, *f.Manifest
	m.Received = received
	own.Manifest, own.first = &m, f
	return &own
}

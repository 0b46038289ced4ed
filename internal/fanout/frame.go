package fanout

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"xdsrelay/internal/fanout/nonce"
	"xdsrelay/internal/fanout/rest"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// Frame is an encoded response without nonces. All streams that need the same response share it, and
// it is never pooled. It is immutable.
type Frame struct {
	*session.Manifest
	// bodies are its messages: one, or the parts of a large delta response (P38); nil: there is nothing
	// to send.
	bodies [][]byte

	// What it is made of, besides the manifest.
	typ        xds.TypeURL
	identifier string // control_plane.identifier
	form       xds.ResourceFormat
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

// emptyFrame is the frame of a plan with nothing to send.
var emptyFrame = &Frame{Manifest: new(session.Manifest)}

// Empty reports whether there is nothing to send.
func (f *Frame) Empty() bool { return f.bodies == nil }

// size returns the length of all messages in bytes.
func (f *Frame) size() (n int) {
	for _, b := range f.bodies {
		n += len(b)
	}
	return n
}

// maxPart is the size of the parts into which a delta response is cut, in bytes. Clients of gRPC
// receive 4 MiB by default (P38).
const maxPart = 3 << 20

// newFrame encodes a response, whose body is cut into parts. ttls is what is left of the TTLs in it.
func newFrame(body *xds.ResponseBody, parts []*xds.ResponseBody, c *session.Content, to *snapshot.Snapshot, ttls []time.Duration) *Frame {
	bodies, m := make([][]byte, len(parts)), c.Manifest(to)
	for i, p := range parts {
		bodies[i] = p.Encode()
		snapshot.CountDerived(int64(len(bodies[i])))
		if len(parts) > 1 {
			c := session.Content{Changed: p.Resources, Heartbeats: p.Heartbeats, Removed: p.Removed, Errors: p.Errors}
			m.Parts = append(m.Parts, c.Manifest(to))
		}
	}
	return &Frame{Manifest: m, bodies: bodies, typ: body.Type, identifier: body.Identifier, form: body.ResourceFormat, version: body.Version,
		resources: c.Changed, heartbeats: c.Heartbeats, removed: c.Removed, errors: c.Errors, ttls: ttls}
}

// frames finds the frames of all snapshots, so that keys with equal resources send the same bytes.
// The caches of snapshots and the messages in flight own a frame; the sets here do not keep it
// alive. The sets have an entry for each frame, and for those dropped since the last garbage
// collection. There are many sets so that workers seldom wait for each other.
//
// The frames of subscriptions that one client has alone (Subscription.Unshared) are here as well:
// with a key for each client, all are of that kind.
var frames [64]xds.WeakSet[Frame]

// share returns the frame with this content. It builds the frame if no snapshot of any key has an
// equal one. Two workers may build the same frame at the same time, for different keys; then one
// of the two stays.
func (fc *frameCache) share(to *snapshot.Snapshot, body *xds.ResponseBody, parts []*xds.ResponseBody, c *session.Content) *Frame {
	var ttls []time.Duration
	if body.WithTTL {
		ttls = remainingTTLs(c, body.Now)
	}
	h := hashContent(body, c, ttls)
	fc.mu.Lock()
	at := fc.byContent.get(h)
	fc.mu.Unlock()
	if at != nil && at.frame.sameContent(body, c, ttls) {
		return at.frame
	}
	f := sharedFrame(h, func(f *Frame) bool { return f.equals(body, c, to, ttls) }, func() *Frame {
		return newFrame(body, parts, c, to, ttls)
	}).receivedAt(to.Received)
	fc.mu.Lock()
	at = new(cell)
	fc.byContent.put(h, at) // it replaces another frame of this hash
	fc.byContent.finish(h, at, built{frame: f})
	fc.mu.Unlock()
	return f
}

// remainingTTLs are the remaining times at now of the TTLs in the content; nil: there are none.
func remainingTTLs(c *session.Content, now time.Time) (out []time.Duration) {
	for _, rs := range [...][]*xds.Resource{c.Changed, c.Heartbeats} {
		for _, r := range rs {
			if r.TTL() > 0 {
				out = append(out, r.RemainingTTL(now))
			}
		}
	}
	return out
}

// sharedFrame returns the frame of hash h that is equal, or else a new one. A new one is dropped if
// another worker made an equal one meanwhile. equal is called under the set's lock; make is not.
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
func (f *Frame) equals(body *xds.ResponseBody, c *session.Content, to *snapshot.Snapshot, ttls []time.Duration) bool {
	return f.typ == body.Type &&
		f.identifier == body.Identifier &&
		f.Version == to.Version &&
		f.HeartbeatVersion == c.HeartbeatVersion &&
		f.Renewed == c.Renewed &&
		f.sameContent(body, c, ttls)
}

// sameContent reports whether f has this content, if it is a frame of the same snapshot.
func (f *Frame) sameContent(body *xds.ResponseBody, c *session.Content, ttls []time.Duration) bool {
	return f.form == body.ResourceFormat && f.version == body.Version && f.OnlyRenewals == c.OnlyRenewals &&
		slices.Equal(f.resources, c.Changed) && slices.Equal(f.heartbeats, c.Heartbeats) && slices.Equal(f.removed, c.Removed) &&
		slices.Equal(f.errors, c.Errors) && slices.Equal(f.ttls, ttls) && slices.Equal(f.Follows, c.Follows) &&
		slices.Equal(f.LaterErrors, c.LaterErrors)
}

var contentSeed = maphash.MakeSeed()

// hashContent hashes the content. It hashes resources by identity, since equal ones are shared.
func hashContent(body *xds.ResponseBody, c *session.Content, ttls []time.Duration) uint64 {
	var h maphash.Hash
	h.SetSeed(contentSeed)
	maphash.WriteComparable(&h, body.ResourceFormat)
	_, _ = h.WriteString(body.Version)
	for _, rs := range [...][]*xds.Resource{c.Changed, c.Heartbeats} {
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
	m.Received, m.Parts = received, nil
	for _, p := range f.Parts {
		part := *p
		part.Received = received
		m.Parts = append(m.Parts, &part)
	}
	own.Manifest, own.first = &m, f
	return &own
}

// frameCache has the frames of one snapshot, in two layers. The layer by key serves clients that
// are in step alike, without a comparison of snapshots. The layer by content lets clients that
// need the same for different reasons share the bytes. Both are bounded, in number and in bytes.
//
// It lives as long as its snapshot, with two exceptions. The cache of a superseded snapshot is
// released when the watcher finds a session that still has the snapshot, at most a minute later
// (sweep). That of the newest snapshot is released when the last client of the key has left. Bytes
// that other keys also use live as long as the last of them (share).
type frameCache struct {
	mu        sync.Mutex
	byKey     layer[session.FrameKey]
	byContent layer[uint64] // one frame for each hash; equality is by identity of resources

	documents rest.Documents // what polls are given (P70), with a lock and bounds of their own

	reported atomic.Bool // it is logged that a response of the snapshot is too large (P38)
}

// maxFrames and frameBytes bound each layer of a snapshot's cache. Frames of frameBytes together
// are kept whatever the size of the snapshot.
const (
	maxFrames  = 128
	frameBytes = 64 << 10
)

func framesOf(s *snapshot.Snapshot) *frameCache {
	return s.Derived(func() any {
		limit := 2*s.Bytes + frameBytes
		return &frameCache{byKey: layer[session.FrameKey]{max: limit}, byContent: layer[uint64]{max: limit}}
	}).(*frameCache)
}

// frame returns the frame of a plan; an empty plan has a frame without body. Building is
// single-flight. If another worker is building the frame, frame parks st and returns nil. That
// worker then wakes st.
func (fc *frameCache) frame(st *stream, p *session.Plan, replica string) *Frame {
	if !p.Shared() {
		b := fc.build(p, replica)
		return b.noteIn(p)
	}
	fc.mu.Lock()
	at := fc.byKey.get(p.Key)
	if at != nil {
		defer fc.mu.Unlock()
		if !at.done {
			at.waiters = append(at.waiters, parked{st, st.run.send()})
			return nil
		}
		return at.noteIn(p)
	}
	at = &cell{}
	fc.byKey.put(p.Key, at)
	fc.mu.Unlock()

	b := fc.build(p, replica)

	fc.mu.Lock()
	fc.byKey.finish(p.Key, at, b)
	waiters := at.waiters
	at.waiters = nil
	fc.mu.Unlock()
	for _, w := range waiters {
		w.st.completed(w.n)
	}
	return b.noteIn(p)
}

// build builds the response of a plan, if it is not too large. Its size is known before anything
// is encoded.
func (fc *frameCache) build(p *session.Plan, replica string) built {
	c := p.Content()
	if c.Empty() {
		return built{frame: emptyFrame}
	}
	body := p.Body(&c, identifier(replica, p.To))
	part := min(maxPart, p.Limit)
	if body.Relay {
		part = p.Limit
	}
	parts := body.Split(part - nonce.Size)
	for _, part := range parts {
		if size := part.Size() + nonce.Size; size > p.Limit {
			return built{frame: emptyFrame, oversized: &session.Oversized{Version: p.To.Version, Bytes: size}}
		}
	}
	return built{frame: fc.share(p.To, body, parts, &c)}
}

// built is the result of a plan: a frame, without body if there is nothing to send, or the size of
// a response that is too large.
type built struct {
	frame     *Frame
	oversized *session.Oversized
}

// noteIn returns the frame, and notes in the plan whether its response is too large.
func (b *built) noteIn(p *session.Plan) *Frame {
	p.Oversized = b.oversized
	return b.frame
}

// cell is an entry of a cache: a frame that a worker is building or has built.
type cell struct {
	built            // set before done
	done    bool     // under the cache's lock
	waiters []parked // bounded by the number of streams
}

// parked is a stream that waits for a frame. Its run state says that a message is in flight, so
// that nothing overtakes the frame (P35).
type parked struct {
	st *stream
	n  uint64
}

// layer is an LRU cache of cells. It keeps at least one body, even if that alone is over the
// bound, since it is needed. A layer with one cell does without the LRU list, which takes some KB:
// all clients of most keys are in step.
type layer[K comparable] struct {
	key   K
	alone *cell // of key; nil: none, or cells has them
	cells *simplelru.LRU[K, *cell]
	bytes int64
	max   int64
}

// get returns the cell of k; nil: there is none.
func (l *layer[K]) get(k K) *cell {
	switch {
	case l.alone != nil && l.key == k:
		return l.alone
	case l.cells != nil:
		c, _ := l.cells.Get(k)
		return c
	}
	return nil
}

// put makes c the cell of k.
func (l *layer[K]) put(k K, c *cell) {
	switch {
	case l.cells != nil:
	case l.alone == nil:
		l.key, l.alone = k, c
		return
	default:
		// It fails only for a size that is not positive.
		l.cells, _ = simplelru.NewLRU(maxFrames, func(_ K, c *cell) { l.removed(c) })
		l.cells.Add(l.key, l.alone)
		l.alone = nil
	}
	l.cells.Remove(k) // so that its bytes do not count any more
	l.cells.Add(k, c)
}

// removed notes that c is not in the cache any more.
func (l *layer[K]) removed(c *cell) {
	if c.done {
		l.bytes -= int64(c.frame.size())
	}
}

// finish notes what was built for the cell of k, if the cell is still in the cache.
func (l *layer[K]) finish(k K, c *cell, b built) {
	if l.get(k) == c {
		l.bytes += int64(b.frame.size())
	}
	c.built, c.done = b, true
	for l.cells != nil && l.bytes > l.max && l.cells.Len() > 1 {
		l.cells.RemoveOldest()
	}
}

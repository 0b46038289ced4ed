package fanout

import (
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

// frameCache has the frames of one snapshot, in two layers. The layer by key serves clients that
// are in step alike, without a comparison of snapshots. The layer by content lets clients that
// need the same for different reasons share the bytes. Both are bounded, in number and in bytes.
//
// It lives as long as its snapshot, with two exceptions. The cache of a superseded snapshot is
// released when the watcher finds a session that still has the snapshot, at most a minute later
// (sweep). That of the newest snapshot is released when the last client of the key has left. Bytes
// that other keys also use live as long as the last of them (encode).
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
	body := p.Body(&c)
	ttls := remainingTTLs(&body, &c)
	h := hashContent(&body, &c, ttls)
	fc.mu.Lock()
	at := fc.byContent.get(h)
	fc.mu.Unlock()
	if at != nil && at.frame.sameContent(&body, &c, ttls) {
		return at.built
	}
	return fc.encode(p, body, c, ttls, h, replica)
}

// encode builds a response that the cache does not have, unless a snapshot of another key has an
// equal frame. Two workers may build the same frame at the same time, for different keys; then one
// of the two stays. The parameters are copies, so that those of build are not allocated.
func (fc *frameCache) encode(p *session.Plan, body xds.ResponseBody, c session.Content, ttls []time.Duration, h uint64, replica string) built {
	body.Identifier = identifier(replica, p.To)
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
	set, equal := &frames[h%uint64(len(frames))], func(f *Frame) bool { return f.equals(&body, &c, p.To, ttls) }
	f := set.Find(h, equal)
	if f == nil {
		f = set.Keep(h, newFrame(&body, parts, &c, p.To, ttls), equal)
	}
	at, made := new(cell), built{frame: f.receivedAt(p.To.Received)}
	fc.mu.Lock()
	fc.byContent.put(h, at) // it replaces another frame of this hash
	fc.byContent.finish(h, at, made)
	fc.mu.Unlock()
	return made
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

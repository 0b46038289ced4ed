package fanout

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"xdsrelay/internal/fanout/rest"
	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/xds"
)

// Frame is an encoded response without nonce: one contiguous body, shared by
// all streams that need the same and never pooled. It is immutable.
type Frame struct {
	*session.Manifest
	body []byte

	// What it is made of, besides the manifest.
	typ       xds.TypeURL
	by        string // control_plane.identifier
	form      xds.Form
	wire      string // version_info or system_version_info
	resources []*xds.Resource
	beats     []*xds.Resource
	removed   []string
	errors    []*xds.ResourceError
	lefts     []time.Duration

	first *Frame // whose bytes it shares: others find them while that is kept; nil: it is that
}

// frameCache has the frames of one snapshot, in two layers: by key, so that
// clients in step alike cost no comparison of snapshots, and by content, so
// that clients that need the same for different reasons share the bytes. Both
// layers are bounded, in number and in bytes. It lives as long as its snapshot, but
// for two cases: of one that was superseded it goes when a look at the sessions
// finds the first that still has it, which may be a minute later (sweep); of the
// newest, when the last client of the key has left. The bytes that other keys have
// as well go with the last of those (shared.go).
type frameCache struct {
	mu        sync.Mutex
	byKey     layer[session.FrameKey]
	byContent layer[uint64] // one frame a hash; equality by identity of resources

	documents rest.Documents // what polls are given (P70), with a lock and bounds of their own

	told atomic.Bool // that a response of the snapshot is too large (P38)
}

// maxFrames bounds each layer of one snapshot's cache; so does frameBytes, which
// is what small frames may take whatever the size of the snapshot.
const (
	maxFrames  = 128
	frameBytes = 64 << 10
)

// cell is a frame that is being built by one worker, or is there.
type cell struct {
	made             // set before done
	done    bool     // under the cache's lock
	waiters []parked // bounded by the streams
}

// parked is a stream that waits for a frame: to its run state that is a
// message in flight, so that nothing overtakes it (P35).
type parked struct {
	st *stream
	n  uint64
}

// layer is a cache of cells, least recently used out first. Of a body that
// alone is over the bound, one is kept: it is the one that everybody needs. Until
// there is a second it is kept without the rest, which takes some KB: of most keys
// all clients are in step.
type layer[K comparable] struct {
	key   K
	alone *cell // of key; nil: none, or cells has them
	cells *simplelru.LRU[K, *cell]
	bytes int64
	max   int64
}

// get returns the cell of k; nil if there is none.
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
		l.cells, _ = simplelru.NewLRU(maxFrames, func(_ K, c *cell) { l.out(c) })
		l.cells.Add(l.key, l.alone)
		l.alone = nil
	}
	l.cells.Remove(k) // so that what it takes does not count any more
	l.cells.Add(k, c)
}

// out notes that c is in the cache no more.
func (l *layer[K]) out(c *cell) {
	if c.done {
		l.bytes -= int64(len(c.frame.body))
	}
}

// finish notes that the cell of k, if it is still there, has what was made.
func (l *layer[K]) finish(k K, c *cell, m made) {
	if l.get(k) == c {
		l.bytes += int64(len(m.frame.body))
	}
	c.made, c.done = m, true
	for l.cells != nil && l.bytes > l.max && l.cells.Len() > 1 {
		l.cells.RemoveOldest()
	}
}

func framesOf(s *xds.Snapshot) *frameCache {
	return s.Derived(func() any {
		limit := 2*s.Bytes + frameBytes
		return &frameCache{byKey: layer[session.FrameKey]{max: limit}, byContent: layer[uint64]{max: limit}}
	}).(*frameCache)
}

// frame returns the frame of a plan; an empty plan has a frame without body.
// Building is single-flight: it returns nil if another worker is at it; st is
// parked then, and that worker lets it go on.
func (c *frameCache) frame(st *stream, p *session.Plan, replica string) *Frame {
	if !p.Shared() {
		m := c.make(p, replica)
		return m.take(p)
	}
	c.mu.Lock()
	at := c.byKey.get(p.Key)
	if at != nil {
		defer c.mu.Unlock()
		if !at.done {
			at.waiters = append(at.waiters, parked{st, st.run.send()})
			return nil
		}
		return at.take(p)
	}
	at = &cell{}
	c.byKey.put(p.Key, at)
	c.mu.Unlock()

	m := c.make(p, replica)

	c.mu.Lock()
	c.byKey.finish(p.Key, at, m)
	waiters := at.waiters
	at.waiters = nil
	c.mu.Unlock()
	for _, w := range waiters {
		w.st.completed(w.n)
	}
	return m.take(p)
}

// made is what came of a plan: the frame, without body if there is nothing to
// send, or the size of a response that is too large.
type made struct {
	frame     *Frame
	oversized *session.Oversized
}

// take notes in the plan what came of it.
func (m *made) take(p *session.Plan) *Frame {
	p.Oversized = m.oversized
	return m.frame
}

// make makes the response of a plan, if it is not too large. Its size is known
// before anything is encoded.
func (fc *frameCache) make(p *session.Plan, replica string) made {
	c := p.Content()
	if c.Empty() {
		return made{frame: emptyFrame}
	}
	body := p.Body(&c, identifier(replica, p.To))
	if size := body.Size() + session.NonceSize; size > p.Limit {
		return made{frame: emptyFrame, oversized: &session.Oversized{Version: p.To.Version, Bytes: size}}
	}
	return made{frame: fc.share(p.To, body, &c)}
}

// emptyFrame: there is nothing to send.
var emptyFrame = &Frame{Manifest: new(session.Manifest)}

// Empty reports whether there is nothing to send.
func (f *Frame) Empty() bool { return f.body == nil }
